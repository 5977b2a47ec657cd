"""To and from what others compute with: torch's own modules, layers for a loop of one's own, ONNX."""
