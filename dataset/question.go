// Package dataset reads questions with their golden answers and hands them out in a seeded order.
//
// Load checks a whole set before it returns: every row has a text, at least one golden answer and
// an id of its own, or the error names the file, the row, what was found and what is allowed.
// Sampler draws from a set; what it draws is a function of seed and position alone.
package dataset

// Question is one question of a data set.
type Question struct {
	ID   string
	Text string
	// Objectives holds the accepted golden answers of each objective, at least one of each; an
	// ordinary question has one objective.
	Objectives [][]string
	// Source names the benchmark the question comes from; "" when the file does not say.
	Source string
	// Hops is the number of facts that the answer takes, at least 1; 0 when it is not known. It
	// groups results and has no part in Set.Hash.
	Hops int `json:"-"`
	// Part is the place of the question's source in Set.Parts. It has no part in Set.Hash either.
	Part int `json:"-"`
}
