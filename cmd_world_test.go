package main

import (
	"reflect"
	"testing"

	"github.com/mempo-train/mempo-train/config"
)

// Every setting reaches the world.
func TestWorldOptionsHoldEverySetting(t *testing.T) {
	settings := config.DefaultWorld()
	settings.World.Seed, settings.Questions.Mix = 7, config.DefaultMix()
	var holds func(path string, value reflect.Value)
	holds = func(path string, value reflect.Value) {
		if value.Kind() != reflect.Struct {
			if value.IsZero() {
				t.Errorf("%s is not set", path)
			}
			return
		}
		for k := range value.NumField() {
			holds(path+"."+value.Type().Field(k).Name, value.Field(k))
		}
	}
	holds("Options", reflect.ValueOf(worldOptions(settings)))
}
