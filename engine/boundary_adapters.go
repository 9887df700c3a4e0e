package engine

/*
#include "mempo.h"
*/
import "C"

import (
	"fmt"
	"strings"

	"github.com/mempo-train/mempo-train/model"
)

var projections = map[string]C.uint{
	"q_proj": C.MEMPO_Q_PROJ, "k_proj": C.MEMPO_K_PROJ, "v_proj": C.MEMPO_V_PROJ, "o_proj": C.MEMPO_O_PROJ,
	"gate_proj": C.MEMPO_GATE_PROJ, "up_proj": C.MEMPO_UP_PROJ, "down_proj": C.MEMPO_DOWN_PROJ,
}

func adaptersOf(a model.Adapters) (C.mempo_adapters, error) {
	if a.Rank == 0 {
		return C.mempo_adapters{}, nil
	}
	adapters := C.mempo_adapters{rank: C.int64_t(a.Rank), scale: C.double(a.Scale())}
	for _, name := range a.Targets {
		target, known := projections[name]
		if !known {
			return adapters, fmt.Errorf("adapters on %q; allowed are %s", name, strings.Join(model.Projections, ", "))
		}
		adapters.targets |= target
	}
	return adapters, nil
}
