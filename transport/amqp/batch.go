package amqp

import "iter"

// BatchMessages walks over the messages of a transfer of FormatBatch: one encoded message, as a
// view, per data section. The envelope sections around them are stepped over. After an error, which
// wraps ErrDecode, the walk ends; a batch without messages gives one.
func BatchMessages(payload []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		bud := newBudget(payload)
		last, found := Code(0), false
		for at := 0; at < len(payload); {
			c, size, err := nextSection(payload[at:], &bud)
			if err == nil && (!mayFollow(c, last) || c == CodeAMQPSequence || c == CodeAMQPValue) {
				err = badf("section 0x%02x behind section 0x%02x of a batch", uint8(c), uint8(last))
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if c == CodeData {
				found = true
				message, _ := SectionValue(payload[at : at+size : at+size]).Binary()
				if !yield(message, nil) {
					return
				}
			}
			if c == CodeFooter && !found { // ahead of the body, as rhea writes it
				c = CodeApplicationProperties
			}
			at, last = at+size, c
		}
		if !found {
			yield(nil, badf("a batch without messages"))
		}
	}
}
