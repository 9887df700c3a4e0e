package weights

import (
	"regexp"

	"github.com/mempo-train/mempo-train/model"
)

// superfluousHeads matches what BertModel computes no token's vector with: a buffer, its pooler, and the heads of models
// that it was trained in.
var superfluousHeads = regexp.MustCompile(`^(embeddings\.position_ids$|pooler\.|cls\.)`)

// OpenEncoder is Open for the folder of an encoder of the BERT family. Names in the files may have "bert." in front; the
// pooler and the heads of pre-training are superfluous.
func OpenEncoder(dir string) (*Folder, error) {
	encoder, err := model.LoadEncoderArchitecture(dir)
	if err != nil {
		return nil, err
	}
	return open(dir, layout{"BertModel", encoder.Parameters(), []string{"", "bert."}, superfluousHeads})
}
