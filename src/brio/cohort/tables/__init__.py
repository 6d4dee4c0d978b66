"""ROI tables shipped with brio."""
