//! The parameters of a burn model, as the JSON that mount.ckpt takes: copy this file into your crate, print what it returns, e.g.
//!
//!     std::fs::write("model.json", parameters(&MyModelConfig::new().init(&device), false))?;
//!
//! and ask before you load: mount.ckpt --inspect -o expect=model.json checkpoint.pt
use burn_store::ModuleSnapshot;

/// `skip_enum_variants`: as your store has it. It is true in PytorchStore, false in SafetensorsStore, and BurnpackStore keeps the names.
pub fn parameters(model: &impl ModuleSnapshot, skip_enum_variants: bool) -> String {
    let tensors = model.collect(None, None, skip_enum_variants);
    let line = |t: &burn_store::burn_pack::Tensor| {
        format!("  {:?}: {{\"shape\": {:?}, \"dtype\": \"{:?}\"}}", t.name, t.shape.to_vec(), t.dtype)
    };
    format!("{{\n{}\n}}\n", tensors.iter().map(line).collect::<Vec<_>>().join(",\n"))
}
