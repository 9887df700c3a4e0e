// Package dataset reads questions with their golden answers and hands them out in a seeded order.
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
}
