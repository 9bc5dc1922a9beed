package status

import (
	"cmp"
	"slices"
)

// Table is a part of a report as rows of text, the same for a page and a terminal. Its text is
// Printable.
type Table struct {
	Columns []Column
	Rows    [][]Cell
}

// Column is the head of one.
type Column struct {
	Key, Name, Help string
	Number          bool
	Sorted          bool  // the table is sorted by it,
	Ascending       bool  // from its least on
	Next            Order // what asks for it sorted by this column, or the other way round if it is already
}

// Cell is one figure, and what more there is to say. Alert highlights it.
type Cell struct {
	Text, More string
	Alert      bool
}

// column is how a table of Ts gets one of its columns.
type column[T any] struct {
	key, name, help string
	number          bool // sorted from the largest on, unless an order is reversed
	compare         func(a, b T) int
	cell            func(T) Cell
}

// words is a column that is sorted by what it shows.
func words[T any](key, name, help string, text func(T) string) column[T] {
	return column[T]{
		key: key, name: name, help: help,
		compare: func(a, b T) int { return cmp.Compare(text(a), text(b)) },
		cell:    func(t T) Cell { return Cell{Text: text(t)} },
	}
}

// figures is a column that shows a number in a format, and is sorted by the number.
func figures[T any, N cmp.Ordered](key, name, help string, number func(T) N, format func(N) string) column[T] {
	return column[T]{
		key: key, name: name, help: help, number: true,
		compare: func(a, b T) int { return cmp.Compare(number(a), number(b)) },
		cell:    func(t T) Cell { return Cell{Text: format(number(t))} },
	}
}

// WatchColumns are those of the table of watches.
func WatchColumns() []Column { return table(nil, watchColumns, Order{}).Columns }

// ResourceColumns are those of the table of mirrored resources.
func ResourceColumns() []Column { return table(nil, resourceColumns, Order{}).Columns }

func keysOf[T any](columns []column[T]) []string {
	keys := make([]string, len(columns))
	for i, c := range columns {
		keys[i] = c.key
	}
	return keys
}

// sorted is items in an order. Those that are equal in it stay as they are.
func sorted[T any](items []T, columns []column[T], by Order) []T {
	items = slices.Clone(items)
	for _, c := range columns {
		if c.key != by.Key {
			continue
		}
		falling := c.number != by.Reverse
		slices.SortStableFunc(items, func(a, b T) int {
			if falling {
				return c.compare(b, a)
			}
			return c.compare(a, b)
		})
	}
	return items
}

// table shows items, which are in the order by.
func table[T any](items []T, columns []column[T], by Order) Table {
	var t Table
	for _, c := range columns {
		head := Column{Key: c.key, Name: c.name, Help: c.help, Number: c.number, Next: Order{Key: c.key}}
		if c.key == by.Key {
			head.Sorted, head.Ascending = true, c.number == by.Reverse
			head.Next.Reverse = !by.Reverse
		}
		t.Columns = append(t.Columns, head)
	}
	for _, item := range items {
		row := make([]Cell, len(columns))
		for i, c := range columns {
			row[i] = c.cell(item)
			row[i].Text, row[i].More = Printable(row[i].Text), Printable(row[i].More)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
