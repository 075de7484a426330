//! The small model of fixtures/a1 and its variants.
use crate::store::{die, guarded, load_any};
use burn::module::Module;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor, TensorData};
use burn_store::{BurnpackStore, ModuleSnapshot, SafetensorsStore};
use serde_json::{Value, json};

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    relu: Relu,
}

impl Mlp {
    fn new(d: &Device) -> Self {
        Self {
            fc1: LinearConfig::new(4, 8).init(d),
            fc2: LinearConfig::new(8, 3).init(d),
            relu: Relu::new(),
        }
    }
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.fc2.forward(self.relu.forward(self.fc1.forward(x)))
    }
}

#[derive(Module, Debug)]
pub struct SeqMlp {
    net: Vec<Linear>,
    relu: Relu,
}

impl SeqMlp {
    pub fn new(d: &Device) -> Self {
        Self {
            net: vec![LinearConfig::new(4, 8).init(d), LinearConfig::new(8, 3).init(d)],
            relu: Relu::new(),
        }
    }
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.net[1].forward(self.relu.forward(self.net[0].forward(x)))
    }
}

/// The input of fixtures/a1/reference.json: 0.1*k - 0.5 in f64, then rounded to f32.
fn input(d: &Device) -> Tensor<2> {
    let xs: Vec<f32> = (0..16).map(|k| (0.1 * k as f64 - 0.5) as f32).collect();
    Tensor::<2>::from_data(TensorData::new(xs, [4, 4]), d)
}

fn rows(t: Tensor<2>) -> Value {
    let [r, c] = t.dims();
    let v: Vec<f32> = t.try_into_vec_as::<f32>().expect("f32 data");
    json!((0..r).map(|i| v[i * c..(i + 1) * c].iter().map(|x| *x as f64).collect::<Vec<_>>()).collect::<Vec<_>>())
}

pub fn mlp(file: &str, adapt: bool, key: Option<&str>) {
    let d = Device::default();
    let mut m = Mlp::new(&d);
    let r = load_any(&mut m, file, adapt, false, key);
    let dims = m.fc1.weight.val().dims();
    let dtype = format!("{:?}", m.fc1.weight.val().dtype());
    let out = guarded(|| rows(m.forward(input(&d))));
    println!("{}", json!({"ok": true, "applied": r.applied.len(), "unused": r.unused, "fc1.weight": dims, "dtype": dtype, "logits": out}));
}

pub fn seq(file: &str, adapt: bool, map: bool) {
    let d = Device::default();
    let mut m = SeqMlp::new(&d);
    let r = load_any(&mut m, file, adapt, map, None);
    println!("{}", json!({"ok": true, "applied": r.applied.len(), "unused": r.unused, "logits": guarded(|| rows(m.forward(input(&d))))}));
}

pub fn sq(file: &str, adapt: bool) {
    let d = Device::default();
    let mut m = LinearConfig::new(4, 4).init(&d);
    let r = load_any(&mut m, file, adapt, false, None);
    let x = Tensor::<2>::from_data(TensorData::new(vec![1f32, 0., 0., 0.], [1, 4]), &d);
    println!("{}", json!({"ok": true, "applied": r.applied.len(), "unused": r.unused, "forward": rows(m.forward(x))[0]}));
}

pub fn save(inp: &str, out: &str) {
    let d = Device::default();
    let mut m = Mlp::new(&d);
    load_any(&mut m, inp, true, false, None);
    if out.ends_with(".bpk") {
        let mut st = BurnpackStore::from_file(out).overwrite(true);
        m.save_into(&mut st).unwrap_or_else(|e| die(e));
    } else {
        let mut st = SafetensorsStore::from_file(out).overwrite(true);
        m.save_into(&mut st).unwrap_or_else(|e| die(e));
    }
    println!("{}", json!({"ok": true, "out": out}));
}
