//! The Python module `zgate._zgate`: models, loads, files and memory. The
//! public interface is written in Python on top of it.

mod buffer;
mod connect;
mod cuda;
mod error;
mod model;
mod runtime;
mod stream;

use pyo3::prelude::*;

#[pymodule]
fn _zgate(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<model::Model>()?;
    module.add_class::<model::Load>()?;
    module.add_class::<stream::RemoteFile>()?;
    module.add_class::<stream::Stream>()?;
    module.add_function(wrap_pyfunction!(model::entries, module)?)?;
    module.add_function(wrap_pyfunction!(connect::leave, module)?)?;
    module.add_function(wrap_pyfunction!(connect::emulate_rdma, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::load_cuda, module)?)?;
    module.add_function(wrap_pyfunction!(cuda::why_no_cuda, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
