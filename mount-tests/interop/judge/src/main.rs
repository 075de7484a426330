//! Judge: what the real burn 0.22.1 (Flex backend) makes of a checkpoint. README.md says which fixture each command runs on.
//!
//! FILE `-` loads nothing and prints the model's parameters, as contrib/burn-parameters does.
//!
//! A whole small model (mlp.rs)
//!   judge load   FILE                 Mlp, no adapter           -> {"ok":..,"logits":[[..]]}
//!   judge loada  FILE.safetensors     Mlp, PyTorchToBurnAdapter
//!   judge pt     FILE.pt [KEY]        Mlp, PytorchStore (KEY: top-level key)
//!   judge sq     FILE                 Linear(4,4), no adapter for .safetensors
//!   judge sqa    FILE.safetensors     Linear(4,4), PyTorchToBurnAdapter
//!   judge seq    FILE                 SeqMlp{net: Vec<Linear>}, no adapter for .safetensors
//!   judge seqa   FILE [map]           the same, PyTorchToBurnAdapter; map: indices made contiguous
//!   judge export IN OUT.safetensors   Mlp through the store + adapter, saved by burn
//!   judge bpk    IN OUT.bpk           same, saved as burnpack
//!
//! One burn layer from a file that already is in burn's layout (layers.rs): .safetensors or .bpk, no adapter (a torch .pt goes
//! through PytorchStore, to see what its adapter leaves missing); forward on the input of make_burn_nn.py
//!   -> {"ok","applied","missing","unused","errors","shape","y"}; exit 1 and y null unless all of it loaded
//!   judge enc    FILE D FF HEADS LAYERS pre|post relu|gelu [adapt]      TransformerEncoder
//!   judge dec    FILE D FF HEADS LAYERS pre|post relu|gelu              TransformerDecoder
//!   judge mha    FILE D HEADS                                           MultiHeadAttention
//!   judge cross  FILE D HEADS DCONTEXT                                  CrossAttention (key and value from one context)
//!   judge linears FILE D HEADS KDIM VDIM                                no burn layer: a user's struct of four Linear
//!   judge lstm|gru|rnn|bilstm|bigru|birnn FILE IN HIDDEN [LAYERS]       one layer, or Vec of LAYERS at the file's root
//!   judge norms  FILE D tuple|vec                                       the ten layers of `norms` as a tuple, or as Vec<enum>
//!   judge flax   FILE                                                 the model of fixtures/flax (flax.rs), linen
//!   judge flax-nnx FILE                                               the same of nnx
//!   judge names                                                         parameter names and shapes of common burn layers
//!
//! Bytes (bytes.rs)
//!   judge dump   FILE [linear] [f64|f32|f16|bf16]
//!                                     every tensor: name, dtype, shape, sha256 of its bytes; `linear`
//!                                     runs PyTorchToBurnAdapter as if each 2-D *.weight sat in a Linear,
//!                                     a dtype adds FloatCastAdapter (chained after it, as burn would)
//!   judge raw    FILE NAME [linear] [dtype]   that tensor's bytes on stdout
//!   judge bpkload FILE.bpk            burnpack as its own reader sees it: metadata, scalars, tensors with sha256
//!   judge bpksample OUT.bpk           a burnpack of every dtype and scalar
//!   judge bench  FILE                 time to draw every tensor's bytes
//!   judge benchlin FILE [TIMES]       same, with every 2-D *.weight transposed by the adapter
mod bytes;
mod flax;
mod layers;
mod mlp;
mod parameters;
mod store;

use burn::nn::gru::{BiGru, Gru};
use burn::nn::{BiLstm, BiRnn, Lstm, Rnn};

fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let rest = a.get(1..).unwrap_or(&[]);
    match (a.first().map(String::as_str), rest) {
        (Some("load"), [f]) => mlp::mlp(f, false, None),
        (Some("loada"), [f]) => mlp::mlp(f, true, None),
        (Some("pt"), [f]) => mlp::mlp(f, false, None),
        (Some("pt"), [f, k]) => mlp::mlp(f, false, Some(k)),
        (Some("seq"), [f]) => mlp::seq(f, false, false),
        (Some("seqa"), [f]) => mlp::seq(f, true, false),
        (Some("seqa"), [f, _]) => mlp::seq(f, true, true),
        (Some("sq"), [f]) => mlp::sq(f, false),
        (Some("sqa"), [f]) => mlp::sq(f, true),
        (Some("export" | "bpk"), [i, o]) => mlp::save(i, o),
        (Some("enc"), r) if r.len() == 7 || r.len() == 8 => layers::enc(r),
        (Some("dec"), r) if r.len() == 7 => layers::dec(r),
        (Some("mha"), r) if r.len() == 3 => layers::mha(r),
        (Some("cross"), r) if r.len() == 4 => layers::cross(r),
        (Some("linears"), r) if r.len() == 5 => layers::linears(r),
        (Some("lstm"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<Lstm>(r),
        (Some("gru"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<Gru>(r),
        (Some("rnn"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<Rnn>(r),
        (Some("bilstm"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<BiLstm>(r),
        (Some("bigru"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<BiGru>(r),
        (Some("birnn"), r) if r.len() == 3 || r.len() == 4 => layers::recurrent::<BiRnn>(r),
        (Some("norms"), r) if r.len() == 3 => layers::norms(r),
        (Some("flax"), [f]) => flax::flax(f, false),
        (Some("flax-nnx"), [f]) => flax::flax(f, true),
        (Some("names"), []) => layers::names(),
        (Some("dump"), [f, w @ ..]) => bytes::dump(f, w),
        (Some("raw"), [f, n, w @ ..]) => bytes::raw(f, n, w),
        (Some("bpkload"), [f]) => bytes::bpkload(f),
        (Some("bpksample"), [o]) => bytes::bpksample(o),
        (Some("bench"), [f]) => bytes::bench(f, false, 3),
        (Some("benchlin"), [f]) => bytes::bench(f, true, 3),
        (Some("benchlin"), [f, n]) => bytes::bench(f, true, n.parse().unwrap_or(3)),
        _ => {
            eprintln!("usage: judge COMMAND FILE ... (commands: the head of main.rs)");
            std::process::exit(2)
        }
    }
}
