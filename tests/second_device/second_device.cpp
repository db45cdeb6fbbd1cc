// A second device for a build of PyTorch without GPU support: the PrivateUse1 backend, in host
// memory. Operators run on the CPU, over the same bytes, and are counted by name.
//
// The device behaves like CUDA where code can be wrong without noticing it on a CPU:
// - an operator with tensors of two devices raises an error, except for CPU tensors without
//   dimensions and CPU indices;
// - uninitialized memory contains NaN;
// - everything that makes the host wait for a CUDA device is counted as a synchronization, by its
//   cause. device.py defines it.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace {

constexpr auto kDeviceType = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kDeviceType, 0);

bool is_ours(const at::Tensor& tensor) {
  return tensor.device().type() == kDeviceType;
}

// ---- Counts ------------------------------------------------------------------------------------

using Counts = std::map<std::string, int64_t>;

std::mutex mutex;
Counts operator_counts;         // calls by operator
Counts synchronization_counts;  // by cause

// The CPU fallback copies and calls operators itself; only the outermost call counts.
thread_local int depth = 0;

struct Uncounted {
  Uncounted() { depth++; }
  ~Uncounted() { depth--; }
};

void count(Counts& counts, const std::string& name) {
  if (depth > 0) return;
  std::lock_guard<std::mutex> guard(mutex);
  counts[name]++;
}

// ---- Memory and the device itself --------------------------------------------------------------

// Streams and events are counted, but order nothing: every operator has finished when it returns.
thread_local c10::StreamId current_stream = 0;
std::atomic<c10::StreamId> num_streams{0};

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = size ? std::malloc(size) : nullptr;
    if (data) std::memset(data, 0xFF, size);  // NaN, so that a use of it is noticed
    return {data, data, &Allocator::release, kDevice};
  }
  static void release(void* data) { std::free(data); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t size) const override {
    std::memcpy(target, source, size);
  }
} allocator;
REGISTER_ALLOCATOR(kDeviceType, &allocator);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kDeviceType;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, kDevice);
  }
  c10::Stream getNewStream(c10::Device, int) const override {
    return c10::Stream(c10::Stream::UNSAFE, kDevice, ++num_streams);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const auto before = getStream(kDevice);
    current_stream = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override { count(operator_counts, "wait for event"); }
  void synchronizeEvent(void*) const override { count(synchronization_counts, "event"); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {
    count(synchronization_counts, "stream");
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    count(synchronization_counts, "device");
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }
  at::Allocator* getPinnedMemoryAllocator() const override { return at::getCPUAllocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto* own = storage.unsafeGetStorageImpl();
    auto data = allocator.allocate(size);
    if (own->data()) {
      std::memcpy(data.get(), own->data(), std::min(size, static_cast<size_t>(own->nbytes())));
    }
    own->set_data_ptr_noswap(std::move(data));
    own->set_nbytes(size);
  }
} hooks;

// ---- Tensors and copies ------------------------------------------------------------------------

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys,
                                           c10::dtype_or_default(type));
}

// Returns a CPU tensor over the same bytes.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_ours(tensor)) return tensor;
  at::Tensor owner = tensor;
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([owner](void*) {})
      .options(at::TensorOptions().dtype(tensor.dtype()).device(c10::kCPU))
      .make_tensor();
}

at::Tensor on_device(const at::Tensor& tensor) {
  if (!tensor.defined() || is_ours(tensor)) return tensor;
  if (!tensor.is_sparse()) return tensor.to(kDevice);
  auto indices = tensor._indices().to(kDevice), values = tensor._values().to(kDevice);
  auto result = at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes());
  return result._coalesced_(tensor.is_coalesced());
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  const bool is_local = is_ours(self) && is_ours(target);
  const std::string name =
      is_local ? "copy" : is_ours(target) ? "copy to device" : "copy to host";
  count(operator_counts, current_stream == 0 ? name : name + " on a side stream");
  if (!is_local && !non_blocking) count(synchronization_counts, name);
  on_host(target).copy_(on_host(self));
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  if (target.sizes() != self.sizes()) target.resize_(self.sizes());
  return copy_from(self, target, false);
}

at::Scalar item(const at::Tensor& self) {
  count(operator_counts, "item");
  count(synchronization_counts, "item");
  return at::native::_local_scalar_dense_cpu(on_host(self));
}

void record_stream(at::Tensor&, at::Stream) { count(operator_counts, "aten::record_stream"); }

at::Tensor& set_storage(at::Tensor& result, at::Storage storage, int64_t offset,
                        c10::IntArrayRef size, c10::IntArrayRef stride) {
  return at::native::set_storage_cpu_(result, storage, offset, size, stride);
}

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

// ---- Operators ---------------------------------------------------------------------------------

// Operators for which CUDA copies a size or a result to the host.
const std::set<std::string> kWaiting = {
    "aten::nonzero",       "aten::masked_select",      "aten::_unique",
    "aten::_unique2",      "aten::unique_consecutive", "aten::unique_dim",
    "aten::_coalesce",     "aten::equal",              "aten::bincount",
    "aten::unique_dim_consecutive",
};

template <typename Function>
void for_each_tensor(const c10::OperatorHandle& op, torch::jit::Stack* stack, Function function) {
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (value.isTensor()) {
      function(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) function(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& element : value.toListRef()) {
        if (element.isTensor()) function(element.toTensor());
      }
    }
  }
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& name = op.schema().operator_name().name;
  const bool is_put = name.find("index_put") != std::string::npos;
  bool uses_device = false, uses_host = false, has_mask = false;
  for_each_tensor(op, stack, [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    uses_device |= is_ours(tensor);
    uses_host |= !is_ours(tensor) && tensor.dim() > 0;
    has_mask |= tensor.scalar_type() == at::kBool;
  });
  TORCH_CHECK(!uses_device || !uses_host || is_put || name == "aten::index",
              "Expected all tensors to be on the same device, but found at least two devices, ",
              kDevice, " and cpu! (", name, ")");
  count(operator_counts, name);
  // With a mask of booleans, CUDA calls nonzero. PyTorch calls it for aten::index on any device.
  if (kWaiting.count(name) || (is_put && has_mask)) count(synchronization_counts, name);
  Uncounted uncounted;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/false);
}

// Sparse tensors are copied to the host, and the results back to the device.
void sparse_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto& name = schema.operator_name().name;
  count(operator_counts, "sparse " + name);
  if (kWaiting.count(name)) count(synchronization_counts, name);
  Uncounted uncounted;
  const size_t num_arguments = schema.arguments().size(), first = stack->size() - num_arguments;
  const auto self = (*stack)[first].isTensor() ? (*stack)[first].toTensor() : at::Tensor();
  for (size_t i = first; i < first + num_arguments; i++) {
    auto& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().defined()) {
      const auto tensor = value.toTensor();
      value = c10::IValue(tensor.is_sparse() ? tensor.to(c10::kCPU) : on_host(tensor));
    } else if (value.isDevice()) {
      value = c10::IValue(c10::Device(c10::kCPU));
    }
  }
  op.callBoxed(stack);
  const size_t num_results = schema.returns().size(), start = stack->size() - num_results;
  for (size_t i = 0; i < num_results; i++) {
    auto& value = (*stack)[start + i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const auto* alias = schema.returns()[i].alias_info();
    if (alias && alias->isWrite() && self.defined()) {
      if (self.is_sparse()) self.copy_(on_device(value.toTensor()));
      value = c10::IValue(self);
    } else {
      value = c10::IValue(on_device(value.toTensor()));
    }
  }
}

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
                       c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
                       c10::IntArrayRef output_padding, int64_t groups) {
  count(operator_counts, "aten::convolution");
  Uncounted uncounted;
  std::optional<at::Tensor> own_bias;
  if (bias && bias->defined()) own_bias = on_host(*bias);
  return on_device(at::convolution(on_host(input), on_host(weight), own_bias, stride, padding,
                                   dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation, bool transposed,
    c10::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  count(operator_counts, "aten::convolution_backward");
  Uncounted uncounted;
  auto [grad_input, grad_weight, grad_bias] =
      at::convolution_backward(on_host(grad), on_host(input), on_host(weight), std::nullopt, stride,
                               padding, dilation, transposed, output_padding, groups, mask);
  return {on_device(grad_input), on_device(grad_weight), on_device(grad_bias)};
}

// The fallback copies arguments, and would lose the running statistics, which this operator changes.
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
    const std::optional<at::Tensor>& variance, bool training, double momentum, double epsilon) {
  count(operator_counts, "aten::native_batch_norm");
  Uncounted uncounted;
  const auto host = [](const std::optional<at::Tensor>& tensor) {
    return tensor ? std::optional<at::Tensor>(on_host(*tensor)) : std::nullopt;
  };
  auto [output, saved_mean, saved_variance] =
      at::native_batch_norm(on_host(input), host(weight), host(bias), host(mean), host(variance),
                            training, momentum, epsilon);
  return {on_device(output), on_device(saved_mean), on_device(saved_variance)};
}

// PyTorch calls these two cells on accelerators only. They are composed of differentiable operators.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(
    const at::Tensor& from_input, const at::Tensor& from_hidden, const at::Tensor& cell,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  auto gates = from_input + from_hidden;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias + *hidden_bias;
  const auto parts = gates.chunk(4, 1);
  const auto next = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * next.tanh(), next, gates};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& from_input,
                                            const at::Tensor& from_hidden, const at::Tensor& hidden,
                                            const std::optional<at::Tensor>& input_bias,
                                            const std::optional<at::Tensor>& hidden_bias) {
  const bool has_bias = input_bias && input_bias->defined();
  const auto x = (has_bias ? from_input + *input_bias : from_input).chunk(3, 1);
  const auto h = (has_bias ? from_hidden + *hidden_bias : from_hidden).chunk(3, 1);
  const auto candidate = (x[2] + (x[0] + h[0]).sigmoid() * h[2]).tanh();
  const auto next = (hidden - candidate) * (x[1] + h[1]).sigmoid() + candidate;
  return {next, candidate};
}

}  // namespace

// ---- Registration ------------------------------------------------------------------------------

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&sparse_fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &item);
  m.impl("record_stream", &record_stream);
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("resize_", &resize_);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("native_batch_norm", &batch_norm);
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_symint));
}

// Autocast treats the operators that the project uses as on CUDA.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  using namespace at::autocast;
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(baddbmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mv, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv1d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(exp, fp32)
  KERNEL_PRIVATEUSEONE(log, fp32)
  KERNEL_PRIVATEUSEONE(log1p, fp32)
  KERNEL_PRIVATEUSEONE(expm1, fp32)
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("register_hooks", [] { at::RegisterPrivateUse1HooksInterface(&hooks); });
  m.def("counts", [] {
    std::lock_guard<std::mutex> guard(mutex);
    return std::make_pair(operator_counts, synchronization_counts);
  });
  m.def("reset", [] {
    std::lock_guard<std::mutex> guard(mutex);
    operator_counts.clear();
    synchronization_counts.clear();
  });
}
