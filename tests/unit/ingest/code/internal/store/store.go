// Package store keeps things.
package store

import (
	"fmt"
	log "github.com/acme/logging/v2"
)

// Max is the limit.
const Max = 10

var (
	ErrGone = fmt.Errorf("gone")
)

// Store is a set of things. It is safe.
type Store struct {
	Base
	items map[string]int
}

// Getter gets.
type Getter interface {
	// Get returns it.
	Get(key string) (int, error)
}

type (
	// ID names one.
	ID string
	key = string
)

// Get returns an item.
func (s *Store) Get(key string) (int, error) {
	log.Info("get")
	return lookup(s, key)
}

func (s List[T]) Len() int { return 0 }

func lookup(s *Store, key string) (int, error) {
	return s.items[key], nil
}

func init() { lookup(nil, "x") }
