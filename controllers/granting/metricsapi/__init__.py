"""Takes the APIService of metrics.liqo.io away while no metric agent answers."""
