"""llama.cpp's own server, in the environment that has it: `python llamacpp.py MODEL.gguf PORT`."""

import signal
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port = sys.argv[1], int(sys.argv[2])
parameters.model_alias = {"served"}
parameters.hostnames = ["127.0.0.1"]
parameters.n_ctx, parameters.n_parallel = 2048, 2
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
# what it keeps of earlier tokens is float16 by default
parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
signal.pause()
