package dataset

import (
	"fmt"
	"slices"
)

const (
	columnAnswerID = "answer_id" // 2WikiMultihopQA: of the entity that is the answer
	columnEntityID = "Q_id"
	aliasExample   = `{"Q_id": "Q30", "aliases": ["USA", "United States"], "demonyms": ["American"]}`
)

// aliasColumns hold other names of an entity, all of which 2WikiMultihopQA's scorer accepts.
var aliasColumns = []string{"aliases", "demonyms"}

// readAliases reads 2WikiMultihopQA's file of aliases: names by the id of their entity; nil without a
// file.
func readAliases(path string) (map[string][]string, error) {
	if path == "" {
		return nil, nil
	}
	names := map[string][]string{}
	err := readFile(path, content{
		name: "alias", example: aliasExample, columns: append([]string{columnEntityID}, aliasColumns...),
		add: func(rec record, _ place) error {
			id, ok, err := rec.lookup(columnEntityID)
			if err != nil {
				return err
			}
			entity, isText := text(id)
			if !ok || !isText {
				return fmt.Errorf("%s is %s, want the id of an entity, as in %s", columnEntityID, describe(id), aliasExample)
			}
			for _, column := range aliasColumns {
				v, ok, err := rec.lookup(column)
				if err != nil {
					return err
				}
				list, isList := v.([]any)
				if ok && !isList {
					return fmt.Errorf("%s is %s, want a list of strings", column, describe(v))
				}
				more, err := readAnswers(column, list)
				if err != nil {
					return err
				}
				names[entity] = append(names[entity], more...)
			}
			return nil
		},
	})
	return names, err
}

// addAliases adds the aliases of a row's answer to its golden answers, once each.
func addAliases(q *Question, rec record, aliases map[string][]string) error {
	if len(aliases) == 0 || len(q.Objectives) != 1 {
		return nil
	}
	id, ok, err := rec.lookup(columnAnswerID)
	if err != nil || !ok {
		return err
	}
	entity, isText := text(id)
	if !isText {
		return fmt.Errorf("%s is %s, want a string", columnAnswerID, describe(id))
	}
	for _, name := range aliases[entity] {
		if !slices.Contains(q.Objectives[0], name) {
			q.Objectives[0] = append(q.Objectives[0], name)
		}
	}
	return nil
}
