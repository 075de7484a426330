//! The models of fixtures/flax in burn: every layer that dialect=flax knows, under the names that the test gives them. Those of linen
//! and of nnx differ in one layer.
use crate::store::{plain, report};
use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::*;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::*;
use burn::tensor::{Device, Int, Tensor, TensorData};

#[derive(Module, Debug)]
struct Block {
    fc: Linear,
    norm: LayerNorm,
}

#[derive(Module, Debug)]
struct Model {
    dense: Linear,
    bare: Linear,
    heads: Linear,
    project: Linear,
    general: Linear,
    lora: Option<Linear>,
    conv1: Conv1d,
    conv2: Conv2d,
    conv3: Conv3d,
    up1: ConvTranspose1d,
    up2: ConvTranspose2d,
    up3: ConvTranspose3d,
    up4: ConvTranspose2d,
    embed: Embedding,
    layer_norm: LayerNorm,
    group_norm: GroupNorm,
    rms_norm: RmsNorm,
    batch_norm: BatchNorm,
    attention: MultiHeadAttention,
    lstm: Lstm,
    fast: Lstm,
    gru: Gru,
    mgu: Option<Gru>,
    simple: Rnn,
    prelu: PRelu,
    layers: Vec<Block>,
}

fn build(nnx: bool) -> Model {
    let d = Device::default();
    let linear = |i, o| LinearConfig::new(i, o).init(&d);
    Model {
        dense: linear(8, 6),
        bare: LinearConfig::new(8, 4).with_bias(false).init(&d),
        heads: linear(8, 6),
        project: linear(6, 4),
        general: linear(6, 4),
        lora: nnx.then(|| linear(8, 6)),
        conv1: Conv1dConfig::new(8, 4, 3).with_padding(PaddingConfig1d::Explicit(1, 1)).init(&d),
        conv2: Conv2dConfig::new([4, 6], [3, 2]).with_groups(2).init(&d),
        conv3: Conv3dConfig::new([2, 2], [2, 2, 2]).init(&d),
        up1: ConvTranspose1dConfig::new([8, 3], 3).with_stride(2).init(&d),
        up2: ConvTranspose2dConfig::new([4, 5], [2, 3]).with_stride([2, 2]).init(&d),
        up3: ConvTranspose3dConfig::new([3, 2], [2, 3, 2]).with_stride([1, 2, 1]).init(&d),
        up4: ConvTranspose2dConfig::new([4, 5], [2, 3]).with_stride([2, 2]).init(&d),
        embed: EmbeddingConfig::new(10, 6).init(&d),
        layer_norm: LayerNormConfig::new(8).init(&d),
        group_norm: GroupNormConfig::new(2, 8).init(&d),
        rms_norm: RmsNormConfig::new(8).init(&d),
        batch_norm: BatchNormConfig::new(8).init(&d),
        attention: MultiHeadAttentionConfig::new(8, 2).init(&d),
        lstm: LstmConfig::new(8, 6, true).init(&d),
        fast: LstmConfig::new(8, 6, true).init(&d),
        gru: GruConfig::new(8, 6, true).init(&d),
        mgu: (!nnx).then(|| GruConfig::new(8, 6, true).init(&d)),
        simple: RnnConfig::new(8, 6, true).init(&d),
        prelu: PReluConfig::new().init(&d),
        layers: (0..3).map(|_| Block { fc: linear(8, 8), norm: LayerNormConfig::new(8).init(&d) }).collect(),
    }
}

fn ramp<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    let n: usize = shape.iter().product();
    let v: Vec<f32> = (0..n).map(|i| (0.37 * i as f64).sin() as f32).collect();
    Tensor::<D>::from_data(TensorData::new(v, shape), &Device::default())
}

/// flax has the channel last.
fn channel_first<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    (2..D).rev().fold(t, |t, axis| t.swap_dims(axis - 1, axis))
}

fn channel_last<const D: usize>(t: Tensor<D>) -> Tensor<D> {
    (2..D).fold(t, |t, axis| t.swap_dims(axis - 1, axis))
}

fn flat<const D: usize>(t: Tensor<D>) -> Tensor<1> {
    let n: usize = t.dims().iter().product();
    t.reshape([n])
}

/// All outputs one behind the other, in the order of the fields, each as flax has it.
fn forward(m: &Model) -> Tensor<1> {
    let x = ramp([2, 5, 8]);
    let image = channel_first(ramp([2, 3, 4, 4]));
    let heads = m.heads.forward(x.clone());
    let ids: Vec<i64> = (0..10).map(|i| 3 * i % 10).collect();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, 5]), &Device::default());
    let rest = [m.lora.as_ref().map(|m| flat(m.forward(x.clone()))), m.mgu.as_ref().map(|m| flat(m.forward(x.clone(), None)))];
    let layers = m.layers.iter().fold(x.clone(), |x, b| x.clone() + b.norm.forward(b.fc.forward(x)));
    Tensor::cat(
        vec![
            flat(m.dense.forward(x.clone())),
            flat(m.bare.forward(x.clone())),
            flat(heads.clone()),
            flat(m.project.forward(heads.clone())),
            flat(m.general.forward(heads)),
            flat(channel_last(m.conv1.forward(channel_first(x.clone())))),
            flat(channel_last(m.conv2.forward(channel_first(ramp([2, 5, 4, 4]))))),
            flat(channel_last(m.conv3.forward(channel_first(ramp([1, 3, 3, 3, 2]))))),
            flat(channel_last(m.up1.forward(channel_first(x.clone())))),
            flat(channel_last(m.up2.forward(image.clone()))),
            flat(channel_last(m.up3.forward(channel_first(ramp([1, 2, 2, 3, 3]))))),
            flat(channel_last(m.up4.forward(image))),
            flat(m.embed.forward(ids)),
            flat(m.layer_norm.forward(x.clone())),
            flat(channel_last(m.group_norm.forward(channel_first(x.clone())))),
            flat(m.rms_norm.forward(x.clone())),
            flat(channel_last(m.batch_norm.forward(channel_first(x.clone())))),
            flat(m.attention.forward(MhaInput::self_attn(x.clone())).context),
            flat(m.lstm.forward(x.clone(), None).0),
            flat(m.fast.forward(x.clone(), None).0),
            flat(m.gru.forward(x.clone(), None)),
            flat(m.simple.forward(x.clone(), None).0),
            flat(m.prelu.forward(x)),
            flat(layers),
        ]
        .into_iter()
        .chain(rest.into_iter().flatten())
        .collect(),
        0,
    )
}

pub fn flax(file: &str, nnx: bool) {
    let mut m = build(nnx);
    let r = plain(&mut m, file, false);
    report(&r, || forward(&m));
}
