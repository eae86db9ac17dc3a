package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// helpers find what a person sees: buttons by their names, fields by their labels. The topmost dialog hides the rest.
const helpers = `
window.person = {
  scope() { return [...document.querySelectorAll('dialog[open]')].at(-1) ?? document; },
  seen(e) { return e.checkVisibility() && !e.disabled; },
  name(e) { return (e.getAttribute('aria-label') ?? e.textContent).replace(/\s+/g, ' ').trim(); },
  button(name) {
    return [...this.scope().querySelectorAll('button, a, summary, input[type=radio]')].find((e) => this.seen(e) &&
      (this.name(e) === name || (e.type === 'radio' && e.parentElement.textContent.trim() === name)));
  },
  field(label) {
    const l = [...this.scope().querySelectorAll('label')].find((e) => e.textContent.trim() === label && e.checkVisibility());
    const named = [...this.scope().querySelectorAll('input, select, textarea')].filter((e) => e.getAttribute('aria-label') === label && e.checkVisibility());
    return l?.control ?? named.at(-1);
  },
  text() { return this.scope() === document ? (document.body?.innerText ?? '') : this.scope().innerText; },
};
`

// Until waits until a script is true.
func (b *Browser) Until(what, script string) error {
	end := time.Now().Add(patience)
	for {
		var ok bool
		err := b.Script(helpers+script, &ok)
		if gone := (*cdproto.Error)(nil); errors.As(err, &gone) && time.Now().Before(end) {
			err = nil // the page has just gone, and another one comes
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if ok {
			return nil
		}
		if time.Now().After(end) {
			var text string
			_ = b.Script(helpers+`person.text()`, &text) // for the message alone
			return fmt.Errorf("%s: not within %v; the page says:\n%.1500s", what, patience, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func quote(text string) string {
	b, _ := json.Marshal(text) // a text can be written
	return string(b)
}

// Sees waits until the page, or the dialog on it, says a text.
func (b *Browser) Sees(text string) error {
	return b.Until("see "+text, "person.text().replace(/\\s+/g, ' ').includes("+quote(text)+")")
}

// SeesNot waits until a text is gone.
func (b *Browser) SeesNot(text string) error {
	return b.Until("see no more "+text, "!person.text().replace(/\\s+/g, ' ').includes("+quote(text)+")")
}

// Press waits for a button or a link of a name, and presses it.
func (b *Browser) Press(name string) error {
	if err := b.Until("a button "+name, "Boolean(person.button("+quote(name)+"))"); err != nil {
		return err
	}
	return b.Script(helpers+"person.button("+quote(name)+").click(); true", nil)
}

// Fill puts a text into a field, as if typed.
func (b *Browser) Fill(label, text string) error {
	if err := b.Until("a field "+label, "Boolean(person.field("+quote(label)+"))"); err != nil {
		return err
	}
	return b.Script(helpers+`(() => {
  const e = person.field(`+quote(label)+`);
  if (e.type === 'checkbox') { if (String(e.checked) !== `+quote(text)+`) { e.click(); } return true; }
  if (e.localName === 'select' && ![...e.options].some((o) => o.value === `+quote(text)+`)) { throw new Error('no such option'); }
  e.value = `+quote(text)+`;
  for (const name of ['input', 'change']) { e.dispatchEvent(new Event(name, { bubbles: true })); }
  return true;
})()`, nil)
}

// Keys presses keys where the focus is.
func (b *Browser) Keys(keys string) error { return b.Run(chromedp.KeyEvent(keys)) }

// Tab presses the tabulator so often.
func (b *Browser) Tab(times int) error {
	for range times {
		if err := b.Keys(kb.Tab); err != nil {
			return err
		}
	}
	return nil
}

// Focus is the name of what has the focus.
func (b *Browser) Focus() (name string, err error) {
	err = b.Script(helpers+`(() => { const e = document.activeElement; return person.name(e) || e.labels?.[0]?.textContent || e.localName; })()`, &name)
	return name, err
}

// Do does steps one after the other, and says at which one it failed.
func Do(steps ...func() error) error {
	for i, step := range steps {
		if err := step(); err != nil {
			return errors.Join(fmt.Errorf("step %d", i+1), err)
		}
	}
	return nil
}
