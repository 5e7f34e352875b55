"""The fictional population, and the release of it that `synth init` writes and the demo runs."""
