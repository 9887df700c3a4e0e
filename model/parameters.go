package model

import "fmt"

// Parameters lists every weight of the model in a fixed order (embedding, layers from first to
// last, final norm, output head) under its HuggingFace name. Projections have shape [out, in].
// lm_head.weight is listed only where it is not the embedding matrix.
func (a Architecture) Parameters() []Parameter {
	hidden := int64(a.HiddenSize)
	parameters := []Parameter{{"model.embed_tokens.weight", []int64{int64(a.VocabSize), hidden}}}
	for layer := range a.Layers {
		parameters = append(parameters, a.layerParameters(fmt.Sprintf("model.layers.%d.", layer))...)
	}
	parameters = append(parameters, Parameter{"model.norm.weight", []int64{hidden}})
	if !a.TiedEmbeddings {
		parameters = append(parameters, Parameter{"lm_head.weight", []int64{int64(a.VocabSize), hidden}})
	}
	return parameters
}

// layerParameters lists the weights of one layer in the order of transformers' modules.
func (a Architecture) layerParameters(prefix string) []Parameter {
	hidden, inner := int64(a.HiddenSize), int64(a.IntermediateSize)
	query, keyValue := int64(a.Heads*a.HeadDim), int64(a.KVHeads*a.HeadDim)
	var parameters []Parameter
	add := func(name string, shape ...int64) {
		parameters = append(parameters, Parameter{prefix + name, shape})
	}
	projection := func(name string, out, in int64, bias bool) {
		add(name+".weight", out, in)
		if bias {
			add(name+".bias", out)
		}
	}
	projection("self_attn.q_proj", query, hidden, a.QKVBias)
	projection("self_attn.k_proj", keyValue, hidden, a.QKVBias)
	projection("self_attn.v_proj", keyValue, hidden, a.QKVBias)
	projection("self_attn.o_proj", hidden, query, a.OutputBias)
	if a.QKNorm {
		add("self_attn.q_norm.weight", int64(a.HeadDim))
		add("self_attn.k_norm.weight", int64(a.HeadDim))
	}
	projection("mlp.gate_proj", inner, hidden, a.MLPBias)
	projection("mlp.up_proj", inner, hidden, a.MLPBias)
	projection("mlp.down_proj", hidden, inner, a.MLPBias)
	add("input_layernorm.weight", hidden)
	add("post_attention_layernorm.weight", hidden)
	return parameters
}
