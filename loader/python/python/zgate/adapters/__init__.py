"""Loaders of others that read through zgate.

:mod:`zgate.adapters.fastsafetensors` is a copier for fastsafetensors,
:mod:`zgate.adapters.vllm` a load format for vLLM. Neither is imported by
``import zgate``, and neither package is needed by it.
"""
