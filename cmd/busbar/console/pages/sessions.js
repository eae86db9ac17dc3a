// The sessions of an entity, what each keeps as its state, and who holds it.

import { act, call, pathOf, view } from './api.js';
import { View, announce, bytes, button, field, h, note, problem, table } from './dom.js';
import { open, work } from './dialog.js';
import { hex, pretty } from './message.js';

class Sessions extends View {
  open() {
    this.body = h('div', {});
    this.one = h('input', { size: 20, spellcheck: 'false' });
    const look = (e) => {
      e.preventDefault();
      this.state(this.one.value);
    };
    this.show(h('form', { class: 'bar', onsubmit: look }, field('Session', this.one), h('button', { type: 'submit' }, 'Show its state')), this.body);
    this.all = [];
    this.load();
  }

  async load(cursor) {
    const signal = this.latest();
    try {
      const found = cursor ? [...this.all] : [];
      const until = found.length + 100;
      let next = cursor;
      do { // a page ends with its share, and tells of the next one
        const got = await view(this.path, 'sessions', { max: 100, cursor: next }, signal);
        found.push(...got.sessions);
        next = got.next;
      } while (next && found.length < until);
      this.all = found;
      this.draw(next, await this.held(signal));
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  /** held finds the holders among the locks of messages. A session that is held without a message shows none. */
  async held(signal) {
    const holders = new Map();
    const got = await view(this.path, 'locks', { max: 1000 }, signal);
    for (const l of got.locks.filter((one) => one.sessionId !== undefined)) {
      holders.set(l.sessionId, l.client || l.takenBy);
    }
    return holders;
  }

  draw(next, held) {
    if (this.all.length === 0) {
      this.body.replaceChildren(note('There is no session with messages or a state.'));
      return;
    }
    const lines = this.all.map((name) => h('tr', {}, h('th', { scope: 'row' }, name || '(empty)'), h('td', {}, held.get(name) ?? ''),
      h('td', { class: 'acts' }, button('State…', () => this.state(name), { 'aria-label': `State of session ${name}` }),
        button('Release…', () => this.release(name), { 'aria-label': `Release session ${name}` }))));
    this.body.replaceChildren(table(`Sessions of ${this.path}`, ['Session', 'Has messages locked by', ['Acts', 'acts']], lines),
      next ? button('Show more', () => this.load(next)) : '');
  }

  ask(method, name, body) {
    return call(method, `/api/entities/${pathOf(this.path)}/session-state`, { session: [name] }, { body });
  }

  async state(name) {
    try {
      this.edit(name, await this.ask('GET', name));
    } catch (error) {
      announce(error.message);
      this.querySelector('.problem')?.remove();
      this.body.prepend(problem(error));
    }
  }

  edit(name, got) {
    const binary = got.encoding === 'base64';
    const text = h('textarea', { rows: 10, spellcheck: 'false', value: binary ? hex(Uint8Array.from(atob(got.state), (c) => c.charCodeAt(0))) : pretty(got.state ?? '') ?? got.state ?? '', readonly: binary });
    const error = h('div', {});
    const put = async (method, said) => {
      try {
        await this.ask(method, name, method === 'PUT' ? text.value : undefined);
        box.close();
        announce(said);
      } catch (wrong) {
        error.replaceChildren(problem(wrong));
      }
    };
    const box = open(`State of session ${name}`, field(got.set ? `State, ${bytes(got.bytes)}${binary ? ', no text: hexadecimal, read only' : ''}` : 'State (none is set)', text), error,
      h('div', { class: 'actions' }, button('Close', () => box.close()),
        got.set ? button('Clear', () => put('DELETE', 'The state is removed.'), { class: 'danger' }) : null,
        binary ? null : button('Save', () => put('PUT', 'The state is saved.'), { class: 'main' })));
  }

  async release(name) {
    const done = await work({ title: `Release session ${name}`, verb: 'Release', danger: true,
      text: 'The session is taken from its holder, as if its lock had run out. Messages that the holder has count one more delivery.',
      run: async () => {
        await act(this.path, 'release-session', { session: [name] });
        return 'The session is released.';
      } });
    if (done) {
      this.load();
    }
  }
}

customElements.define('bb-sessions', Sessions);
