"""ResourceSlices on both sides: completed and turned into virtual nodes here, certified there."""
