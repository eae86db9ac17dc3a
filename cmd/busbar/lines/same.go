package lines

import (
	"bytes"
	"slices"
)

// defaultPriority is that of AMQP 1.0 §3.2.1.
const defaultPriority = 4

// SameButForOrder tells whether two encoded messages have the same values. The order of annotations, application
// properties and footer may differ; that of maps inside them counts.
func SameButForOrder(a, b []byte) (bool, error) {
	first, err := sorted(a)
	if err != nil {
		return false, err
	}
	second, err := sorted(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(first, second), nil
}

// sorted is the line of a message with those sections in an order of their own.
func sorted(payload []byte) ([]byte, error) {
	m, err := Decode(payload)
	if err != nil {
		return nil, err
	}
	if m.Header == nil {
		m.Header = &Header{} // a header without a field says as much as none
	}
	if p := m.Header.Priority; p != nil && *p == defaultPriority {
		m.Header.Priority = nil
	}
	for _, pairs := range []*[]any{&m.DeliveryAnnotations, &m.MessageAnnotations, &m.ApplicationProperties, &m.Footer} {
		texts := make([][]byte, 0, len(*pairs))
		for _, pair := range *pairs {
			text, err := marshal(pair)
			if err != nil {
				return nil, err
			}
			texts = append(texts, text)
		}
		slices.SortFunc(texts, bytes.Compare)
		*pairs = nil
		for _, text := range texts {
			*pairs = append(*pairs, string(text))
		}
	}
	return m.Line()
}
