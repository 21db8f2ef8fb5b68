"""Other programs that compute an exported model: CTranslate2 and ONNX Runtime."""
