// Package lint holds the rules of the source tree as tests: who may import whom, where C and libtorch may be reached, how
// long files and functions may get, and that every shipped configuration loads. It has no code of its own.
package lint
