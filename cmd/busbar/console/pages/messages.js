// The messages of an entity by state, session, number and filter. Nothing is locked and nothing removed.

import { act, may, view } from './api.js';
import { View, announce, button, bytes, count, field, h, many, moment, note, problem, select, table } from './dom.js';
import { pages, work } from './dialog.js';
import { compose } from './send.js';
import './message.js';

const pageSize = 50;
const patience = 5000; // ms that one press looks for a message
const states = { queue: [['active', 'active'], ['scheduled', 'scheduled'], ['deferred', 'deferred'], ['', 'all']],
  subscription: [['active', 'active'], ['deferred', 'deferred'], ['', 'all']], topic: [['scheduled', 'scheduled']] };

/** Messages is a list of messages; the one of dead letters goes on from it. */
export class Messages extends View {
  open() {
    this.all = [];
    this.body = h('div', {});
    this.detail = h('div', {});
    this.show(this.form(), h('div', { class: 'split' }, this.body, this.detail));
    this.load();
  }

  /** where is the path that is read. */
  get where() {
    return this.path;
  }

  form() {
    const kind = this.entity.kind;
    this.state = select(states[kind] ?? states.queue, kind === 'topic' ? 'scheduled' : 'active', {});
    const acts = may('Manage', this.path) && kind !== 'topic' ? [button('Move…', () => this.move()), button('Purge…', () => this.purge(), { class: 'danger' })] : [];
    return this.controls([field('State', this.state)], acts);
  }

  /** controls is the line with what is chosen from. */
  controls(before, acts) {
    this.session = h('input', { size: 12, spellcheck: 'false' });
    this.from = h('input', { size: 12, inputmode: 'numeric', spellcheck: 'false' });
    this.filter = h('input', { size: 34, spellcheck: 'false', placeholder: "sys.DeliveryCount > 3 AND region = 'eu'" });
    const again = (e) => {
      e.preventDefault();
      this.load();
    };
    return h('form', { class: 'bar', onsubmit: again }, before, this.entity.requiresSession ? field('Session', this.session) : null,
      field('From number', this.from), field('Filter, SQL of rules', this.filter), h('button', { type: 'submit', class: 'main' }, 'Show'),
      h('span', { class: 'space' }), acts);
  }

  values(cursor) {
    return { state: this.state?.value, session: this.session.value, from: this.from.value.trim(), filter: this.filter.value.trim(), max: pageSize, cursor };
  }

  async load(cursor) {
    const signal = this.latest();
    const until = Date.now() + patience;
    try {
      let got = await view(this.where, 'messages', this.values(cursor), signal);
      while (got.messages.length === 0 && got.next && Date.now() < until) { // of a partition that has none
        got = await view(this.where, 'messages', this.values(got.next), signal);
      }
      this.all = cursor ? [...this.all, ...got.messages] : got.messages;
      this.draw(got.next);
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw(next) {
    const more = next ? button('Show more', () => this.load(next)) : null;
    if (this.all.length === 0) {
      this.body.replaceChildren(note(next ? 'None so far. ' : 'There is no such message.'), more ?? '');
      return;
    }
    this.body.replaceChildren(table(`Messages of ${this.where}`, this.columns(), this.all.map((m) => this.line(m))),
      h('div', { class: 'pager' }, h('span', {}, `${many(this.all.length, 'message')} shown`), more));
  }

  columns() {
    return [['Number', 'number'], 'State', 'Enqueued', 'Message id', ...(this.entity.requiresSession ? ['Session'] : []), 'Subject', ['Deliveries', 'number'], ['Size', 'number'], 'Body'];
  }

  line(m) {
    return h('tr', {}, this.opener(m), h('td', {}, m.lockedUntil ? `${m.state}, locked` : m.state),
      h('td', {}, m.state === 'scheduled' ? ['for ', moment(m.scheduledAt)] : moment(m.enqueuedAt)), h('td', { class: 'clip' }, m.messageId ?? ''),
      this.entity.requiresSession ? h('td', { class: 'clip' }, m.sessionId ?? '') : null, h('td', { class: 'clip' }, m.subject ?? ''),
      h('td', { class: 'number' }, count(m.deliveryCount)), h('td', { class: 'number' }, bytes(m.bodyBytes)), this.preview(m));
  }

  preview(m) {
    return h('td', { class: 'clip rest mono' }, m.bodyEncoding ? '(binary)' : m.body.slice(0, 120));
  }

  opener(m) {
    return h('th', { scope: 'row', class: 'number' }, button(String(m.sequenceNumber), () => this.look(m), { class: 'link' }));
  }

  look(m) {
    const one = document.createElement('bb-message');
    one.message = m;
    one.acts = this.acts(m);
    one.addEventListener('closed', () => this.detail.replaceChildren());
    this.detail.replaceChildren(one);
  }

  /** acts are what may be done with one message. */
  acts(m) {
    const acts = [];
    if (may('Send', this.path) && this.entity.kind !== 'subscription') {
      acts.push(['Send a copy…', () => compose(this.path, m, 'Send a copy')]);
    }
    if (m.state === 'scheduled' && may('Manage', this.path)) {
      acts.push(['Cancel…', () => this.removeOne(m, 'Cancel the scheduled message'), 'danger']);
    } else if (may('Manage', this.path)) {
      acts.push(['Delete…', () => this.removeOne(m, `Delete the ${m.state} message`), 'danger']);
    }
    return acts;
  }

  async removeOne(m, title) {
    const done = await work({ title: `${title} ${m.sequenceNumber}`, text: 'One message is removed.', verb: 'Remove it', danger: true,
      run: async () => {
        await act(this.where, 'delete', { number: m.sequenceNumber });
        return 'The message is removed.';
      } });
    if (done) {
      this.gone(m);
    }
  }

  /** gone takes a message off the list. */
  gone(m) {
    this.all = this.all.filter((one) => one.sequenceNumber !== m.sequenceNumber);
    this.detail.replaceChildren();
    this.load();
  }

  /** which says which messages an act on many takes. The filter chooses them, too; the state and the number choose what is shown alone. */
  which(active, done, stay) {
    const session = this.session.value;
    const filter = this.filter.value.trim();
    const selected = filter ? ` and that the filter ${filter} selects` : '';
    const text = session && !filter ? `All waiting messages of session ${session} are ${done}.` :
      `${many(active, 'active message')} are there. Those that wait${selected} are ${done}. ${stay}`;
    const others = this.from.value.trim() || this.state.value !== 'active';
    return { text: others ? `${text} The state and the number above choose what is shown, and not what is ${done}.` : text,
      total: session || filter ? undefined : active, chosen: { session: session || undefined, filter: filter || undefined } };
  }

  /** move sends waiting messages to another entity. */
  async move() {
    const told = await view(this.where, 'description', {}, this.signal);
    const to = h('input', { spellcheck: 'false' });
    const { text, total, chosen } = this.which(told.counts.active, 'moved', 'Locked ones stay.');
    const done = await work({ title: `Move messages of ${this.where}`, verb: 'Move', fields: [field('To queue or topic', to)], total, text,
      run: async (tell, state) => {
        let until;
        let failed = 0;
        const { done: moved, stopped } = await pages(async (cursor) => {
          const got = await act(this.where, 'move', { to: to.value.trim(), ...chosen, until, max: 200, cursor });
          until = got.until;
          failed += got.failed ?? 0;
          return { done: got.moved, next: got.next };
        }, tell, state);
        return `${many(moved, 'message')} moved to ${to.value.trim()}${passed(failed)}${stopped ? ', then stopped' : ''}.`;
      } });
    if (done) {
      this.load();
    }
  }

  /** purge deletes waiting messages. */
  async purge() {
    const told = await view(this.where, 'description', {}, this.signal);
    const { text, total, chosen } = this.which(told.counts.active, 'deleted', 'Locked, scheduled and deferred ones stay.');
    const done = await work({ title: `Purge ${this.where}`, verb: 'Purge', danger: true, word: this.path, total, text,
      run: async (tell, state) => {
        let before;
        let skipped = 0;
        let failed = 0;
        const { done: deleted, stopped } = await pages(async (cursor) => {
          const got = await act(this.where, 'purge', { before, ...chosen, cursor });
          before = got.before;
          skipped += got.skippedSessions;
          failed += got.failed ?? 0;
          return { done: got.deleted, next: got.next };
        }, tell, state);
        return `${many(deleted, 'message')} deleted${passed(failed)}${skipped ? `, ${many(skipped, 'session')} held by receivers left alone` : ''}${stopped ? ', then stopped' : ''}.`;
      } });
    if (done) {
      announce('The purge is over.');
      this.load();
    }
  }
}

/** passed tells of messages on which the filter fails, which are not selected. */
function passed(failed) {
  return failed ? `, the filter failed on ${many(failed, 'message')}` : '';
}

customElements.define('bb-messages', Messages);
