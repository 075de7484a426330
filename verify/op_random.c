/* What draws random numbers is refused: no two runs agree. */
#include <errno.h>

#include "verify/op.h"

static int refuse(struct ckpt_call *c, struct ckpt_err *err) {
    (void)c;
    return ckpt_fail(err, -EOPNOTSUPP,
                     "draws random numbers, so that no two runs of the model agree");
}

static const struct ckpt_op ops[] = {
    {"rand",
     "rand(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     refuse},
    {"randn",
     "randn(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None) -> Tensor",
     refuse},
    {"rand_like",
     "rand_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     refuse},
    {"randn_like",
     "randn_like(Tensor self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
     "bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     refuse},
    {"randint",
     "randint(SymInt high, SymInt[] size, *, ScalarType? dtype=4, Layout? layout=None, Device? "
     "device=None, bool? pin_memory=None) -> Tensor",
     refuse},
    {"randint",
     "randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=4, Layout? "
     "layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     refuse},
    {"randint_like",
     "randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None, Layout? layout=None, "
     "Device? device=None, bool? pin_memory=None, MemoryFormat? memory_format=None) -> Tensor",
     refuse},
    {"randint_like",
     "randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, ScalarType? dtype=None, "
     "Layout? layout=None, Device? device=None, bool? pin_memory=None, MemoryFormat? "
     "memory_format=None) -> Tensor",
     refuse},
    {"randperm",
     "randperm(SymInt n, *, ScalarType? dtype=4, Layout? layout=None, Device? device=None, bool? "
     "pin_memory=None) -> Tensor",
     refuse},
    {"bernoulli", "bernoulli(Tensor self, *, Generator? generator=None) -> Tensor", refuse},
    {"bernoulli", "bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor",
     refuse},
    {"bernoulli", "bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None) -> Tensor",
     refuse},
    {"multinomial",
     "multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? "
     "generator=None) -> Tensor",
     refuse},
    {"normal",
     "normal.Tensor_float(Tensor mean, float std=1., *, Generator? generator=None) -> Tensor",
     refuse},
    {"normal",
     "normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor", refuse},
    {"normal",
     "normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor",
     refuse},
    {"normal",
     "normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, "
     "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> "
     "Tensor",
     refuse},
    {"uniform",
     "uniform(Tensor self, float from=0., float to=1., *, Generator? generator=None) -> Tensor",
     refuse},
};

const struct ckpt_op_family ckpt_family_random = CKPT_OP_FAMILY(ops);
