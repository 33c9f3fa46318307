module pyliqo.io/bench/const

go 1.25.0
