"""The table behind `absent.py`: module -> (why it is lacking, its names).

A word is the name of a class when it starts with a capital, of a constant when it is in capitals, else of a function;
`Class{a,B}` gives a class members, `:name` is a constant all the same. Some need nothing to work: `name=value`,
`name()=value` (a function with one answer), `@name` (a decorator that changes nothing), `!Name` (an exception),
`~Name` (a class whose objects only say what is wanted).
"""

_MANY = "training over several processes is not written"
_SHARD = "sharding parameters over processes is not written"
_ONNX = "translations to ONNX stand beside the operators here"
_EXPORT = "this part of export is not written"
_CAPTURE = "this part of the capture of programs is not written"
_COMPILER = "this part of the compiler is not written"
_UNBACKED = "it is a part of PyTorch's own symbols for sizes that depend on data"
_ROCM = "ROCm is not supported"
_GPU = "this part of CUDA is not written"

_FSDP = "FlatParameter"
_CHECKPOINT = "distributed.checkpoint"

TABLE: dict[str, tuple[str, str]] = {
    "": (
        "it is not written", "empty_quantized PyTorchFileReader"
        " :float4_e2m1fn_x2"
        " :uint1 :uint2 :uint3 :uint4 :uint5 :uint6 :uint7 :int1 :int2 :int3 :int4 :int5 :int6 :int7",
    ),
    # ------------------------------------------------------------------------------------------ capture and compile
    "fx.passes.regional_inductor": (_COMPILER, "regional_inductor"),
    "fx.passes.runtime_assert": (_COMPILER, "insert_deferred_runtime_asserts"),
    "fx.experimental.symbolic_shapes": (_UNBACKED, "DivideByKey SymNode compute_unbacked_bindings"),
    "_dynamo": (
        _CAPTURE,
        "replay reset_code_caches()=None",
    ),
    "_dynamo.callback": (_CAPTURE, "callback_handler on_compile_end on_compile_start"),
    "_dynamo.config": (
        _CAPTURE,
        "accumulated_cache_size_limit=256 automatic_dynamic_shapes=True "
        "inline_inbuilt_nn_modules=True optimize_ddp=True "
        "skip_fwd_side_effects_in_bwd_under_checkpoint=False",
    ),
    "_dynamo.decorators": (_CAPTURE, ""),
    "_dynamo.utils": (_CAPTURE, "CompileProfiler"),
    "_functorch": ("", ""),
    "_functorch.aot_autograd": (_COMPILER, "aot_export_joint_simple aot_export_module"),
    "_functorch.eager_transforms": (_COMPILER, ""),
    "_higher_order_ops": (_CAPTURE, ""),
    "_higher_order_ops.flex_attention": ("flex attention is a function here, not an operator", "flex_attention flex_attention_backward"),
    "_higher_order_ops.wrap": (_CAPTURE, "wrap"),
    "_inductor.config": (_COMPILER, "emulate_precision_casts=False force_fuse_int_mm_with_mul=False"),
    "_inductor.utils": (_COMPILER, "fresh_inductor_cache fresh_cache"),
    "_inductor.virtualized": (_COMPILER, ""),
    "_dynamo.external_utils": (_CAPTURE, "@wrap_inline is_compiling()=False"),
    "_guards": (_CAPTURE, "detect_fake_mode()=None TracingContext CompileContext Source"),
    "_prims": (_COMPILER, ""),
    "_refs": (_COMPILER, ""),
    "_weights_only_unpickler": ("it is a part of PyTorch's own reader", "load get_globals_in_pkl"),
    "monitor": ("counters of events are not written", "Stat Event log_event Aggregation"),
    "utils._config_module": (_COMPILER, "ConfigModule install_config_module"),
    "utils._device": ("it is a part of PyTorch's own default device", "DeviceContext"),
    "utils._traceback": (_COMPILER, "CapturedTraceback report_compile_source_on_error"),
    "_subclasses.functional_tensor": (_COMPILER, "FunctionalTensor FunctionalTensorMode"),
    "export": (_EXPORT, "Constraint"),
    "onnx": (_ONNX, "JitScalarType TensorProtoDataType{FLOAT,INT64} is_onnxrt_backend_supported()=False"),
    "onnx.symbolic_helper": (_ONNX, "@parse_args @quantized_args cast_pytorch_to_onnx _get_tensor_sizes _unimplemented"),
    **{f"onnx.symbolic_opset{n}": (_ONNX, "dropout masked_fill select softmax squeeze unsqueeze") for n in range(7, 21)},
    "utils.jit": ("", ""),
    "utils.jit.log_extract": (
        "the TorchScript compiler is not written",
        "load_graph_and_inputs run_baseline_no_fusion run_nnc run_nvfuser",
    ),
    # ------------------------------------------------------------------------------------------ quantization, dtypes
    "ao.pruning": ("pruning schedules are not written", "WeightNormSparsifier BaseSparsifier"),
    # ------------------------------------------------------------------------------------------ several processes
    "distributed._symmetric_memory": (_MANY, "enable_symm_mem_for_group empty rendezvous"),
    "distributed._tools": ("", ""),
    _CHECKPOINT: (_SHARD, "load_sharded_optimizer_state_dict"),
    f"{_CHECKPOINT}.optimizer": (_SHARD, "load_sharded_optimizer_state_dict"),
    f"{_CHECKPOINT}.quantized_hf_storage": (_SHARD, "QuantizedHuggingFaceStorageReader"),
    "distributed.config": (_MANY, "patch compile_on_one_rank=False use_torchcomms=False"),
    "distributed.elastic.agent.server.health_check_server": (_MANY, "HealthCheckServer"),
    "distributed.fsdp": (_SHARD, _FSDP),
    "distributed.fsdp._common_utils": (_SHARD, "_FSDPState clean_tensor_name"),
    "distributed.fsdp._runtime_utils": (_SHARD, "_lazy_init"),
    "distributed.fsdp._traversal_utils": (_SHARD, "_get_fsdp_handles"),
    "numa": ("", ""),
    "numa.binding": ("binding processes to memory nodes is not written", "AffinityMode{NODE,SOCKET,EXCLUSIVE,CORE_COMPLEX} NumaOptions"),
    # ------------------------------------------------------------------------------------------ tools and native code
    "classes": ("classes of C++ extensions cannot be loaded", "load_library"),
    "cuda._sanitizer": (_GPU, "enable_cuda_sanitizer"),
    "cuda.comm": (_GPU, "broadcast broadcast_coalesced gather reduce_add scatter"),
    "cuda.gds": (_GPU, "GdsFile"),
    "cuda.jiterator": (_GPU, "_create_jit_fn"),
    "cuda.tunable": (_GPU, "enable is_enabled tuning_enable"),
    "package": ("packages of code and data are not written", "PackageExporter PackageImporter"),
    "utils.benchmark.op_fuzzers": ("", ""),
    "utils.hipify": ("", ""),
    "utils.hipify.hipify_python": (_ROCM, "hipify GeneratedFileCleaner"),
    "utils.mkldnn": ("models are not converted for oneDNN; it is used anyway", "to_mkldnn"),
}  # fmt: skip
