"""What containers use, for the clusters whose pods they are: the aggregated API metrics.liqo.io."""
