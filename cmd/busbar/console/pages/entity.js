// The page of one entity: its counts, what may be done to it as a whole, and a tab for each side of it.

import { act, atom, look, may, everywhere, view } from './api.js';
import { View, announce, button, bytes, count, h, many, note } from './dom.js';
import { work } from './dialog.js';
import { rows, watch } from './live.js';
import { redraw, spark } from './spark.js';
import { link, sign } from './tree.js';
import './messages.js';
import './send.js';
import './receive.js';
import './dead.js';
import './sessions.js';
import './locks.js';
import './history.js';
import './rules.js';
import './settings.js';
import './connections.js';
import './subscriptions.js';

/** The tabs: name, title, tag, the right that it takes, and the kinds of entity that have it. */
const tabs = [
  ['subscriptions', 'Subscriptions', 'bb-subscriptions', 'Manage', ['topic']],
  ['messages', 'Messages', 'bb-messages', 'Manage', ['queue', 'subscription', 'topic']],
  ['send', 'Send', 'bb-send', 'Send', ['queue', 'topic']],
  ['dead', 'Dead letters', 'bb-dead', 'Manage', ['queue', 'subscription']],
  ['receive', 'Receive', 'bb-receive', 'Listen', ['queue', 'subscription'], (e) => !e.requiresSession],
  ['sessions', 'Sessions', 'bb-sessions', 'Manage', ['queue', 'subscription'], (e) => e.requiresSession],
  ['locks', 'Locks', 'bb-locks', 'Manage', ['queue', 'subscription']],
  ['history', 'History', 'bb-history', 'Manage', ['queue', 'subscription']],
  ['clients', 'Clients', 'bb-connections', 'Manage', ['queue', 'topic', 'subscription'], () => everywhere()],
  ['rules', 'Rules', 'bb-rules', 'Manage', ['subscription']],
  ['settings', 'Settings', 'bb-settings', 'Manage', ['queue', 'topic', 'subscription']],
];

const shown = [['active', 'Active'], ['deadLetter', 'Dead letters'], ['scheduled', 'Scheduled'], ['deferred', 'Deferred'],
  ['locked', 'Locked'], ['transfer', 'In transfer'], ['sessions', 'Sessions'], ['sizeBytes', 'Size']];

class Entity extends View {
  async open() {
    try {
      this.row = may('Manage', this.path) ? await look(this.path, this.signal) : this.guessed();
    } catch (error) {
      this.fails(error);
      return;
    }
    if (!this.row) {
      this.show(h('h1', {}, this.path), note('There is no such queue, topic or subscription.'));
      return;
    }
    rows.set(this.row.name.toLowerCase(), this.row);
    this.tiles = h('dl', { class: 'tiles' });
    this.line = may('Manage', this.path) ? spark(this.row.name) : null;
    this.nav = h('nav', { class: 'tabs', 'aria-label': `Parts of ${this.row.name}` });
    this.body = h('div', { class: 'part' });
    this.top = h('div', { class: 'title' });
    this.heading();
    this.show(this.top, this.tiles, this.nav, this.body);
    if (may('Manage', this.path)) {
      this.until(watch({ paths: [this.row.name] }, () => this.refresh()));
    }
    this.counts();
    this.turn(this.tab);
  }

  /** guessed is what a key that may not look knows of an entity: nothing but its path. */
  guessed() {
    const kind = /\/subscriptions\//i.test(this.path) ? 'subscription' : 'queue';
    return { name: this.path, kind, status: '', requiresSession: false };
  }

  heading() {
    const e = this.row;
    const parent = e.kind === 'subscription' ? e.name.replace(/\/subscriptions\/.*$/i, '') : '';
    const badge = e.status && e.status !== 'Active' ? h('span', { class: 'mark' }, e.suspended ? `${e.status}, suspended by an operator` : e.status) : '';
    const name = parent ? [h('a', { href: link(parent) }, parent), ' / ', e.name.slice(parent.length).replace(/^\/subscriptions\//i, '')] : e.name;
    const acts = everywhere() ? [e.suspended ? button('Resume', () => this.resume()) : button('Suspend', () => this.suspend())] : [];
    if (everywhere() || (may('Manage', this.path) && e.kind === 'subscription')) {
      acts.push(button('Delete', () => this.remove(), { class: 'danger' }));
    }
    this.top.replaceChildren(h('h1', {}, sign(e.kind), ' ', name), badge, this.line ?? '', h('span', { class: 'space' }), ...acts);
  }

  counts() {
    const c = this.row.counts;
    if (!c) {
      this.tiles.replaceChildren(...(this.row.status ? [h('dt', {}, 'Counts'), h('dd', {}, 'not known now')] : []));
      return;
    }
    const all = this.row.kind === 'topic' ? shown.filter(([name]) => ['scheduled', 'sizeBytes'].includes(name)) : shown;
    this.tiles.replaceChildren(...all.filter(([name]) => name !== 'sessions' || this.row.requiresSession)
      .map(([name, title]) => h('div', { class: name === 'deadLetter' && c[name] ? 'bad' : '' }, h('dt', {}, title),
        h('dd', { 'data-count': name }, name === 'sizeBytes' ? bytes(c[name]) : count(c[name])))));
  }

  refresh() {
    const row = rows.get(this.row.name.toLowerCase());
    if (!row) {
      return;
    }
    if (row.missing) {
      this.show(h('h1', {}, this.path), note('The entity was deleted.'));
      return;
    }
    const status = row.status !== this.row.status || row.suspended !== this.row.suspended;
    this.row = row;
    this.counts();
    redraw(this.line, row.name);
    if (status) {
      this.heading();
    }
  }

  /** turn shows a tab, the first one that there is if none is named. */
  turn(name) {
    if (!this.row) {
      this.tab = name;
      return;
    }
    const mine = tabs.filter(([, , , right, kinds, more]) => may(right, this.path) && kinds.includes(this.row.kind) && (!more || more(this.row)));
    const at = mine.find(([tab]) => tab === name) ?? mine[0];
    this.nav.replaceChildren(...mine.map(([tab, title]) => h('a', { href: link(this.row.name, tab), 'aria-current': tab === at?.[0] ? 'page' : null }, title)));
    if (!at) {
      this.body.replaceChildren(note('You may do nothing here.'));
      return;
    }
    const part = document.createElement(at[2]);
    part.path = this.row.name;
    part.entity = this.row;
    this.body.replaceChildren(part);
  }

  async again() {
    this.row = await look(this.row.name, this.signal) ?? this.row;
    this.heading();
    this.counts();
    dispatchEvent(new CustomEvent('entities-changed'));
  }

  async suspend() {
    const { name } = this.row;
    const list = h('select', { 'aria-label': 'What is forbidden' }, h('option', { value: 'Disabled' }, 'sending and receiving'),
      h('option', { value: 'SendDisabled' }, 'sending'), h('option', { value: 'ReceiveDisabled' }, 'receiving'));
    const done = await work({ title: `Suspend ${name}`, verb: 'Suspend', fields: [h('p', {}, 'Forbid ', list)],
      text: `Until you resume ${name}, its users cannot lift this. Messages stay. Nobody can change or delete it.`,
      run: async () => {
        await act(name, 'suspend', { status: list.value });
        return `${name} is suspended.`;
      } });
    if (done) {
      await this.again();
    }
  }

  async resume() {
    try {
      await act(this.row.name, 'resume');
      announce(`${this.row.name} is resumed.`);
      await this.again();
    } catch (error) {
      announce(error.message);
    }
  }

  /** remove says first what goes with the entity. */
  async remove() {
    const { name, kind } = this.row;
    const told = kind === 'topic' ? null : (await view(name, 'description', {}, this.signal)).counts;
    const text = told ? `${name} holds ${many(told.active, 'message')}, ${many(told.deadLetter, 'dead letter')} and ` +
      `${many(told.scheduled, 'scheduled message')}. All of them are lost.` :
      `${name} has ${many(this.row.subscriptions ?? 0, 'subscription')}. They and their messages are lost.`;
    const done = await work({ title: `Delete ${name}`, text, verb: 'Delete', danger: true, word: name,
      run: async () => {
        await atom('DELETE', name);
        return `${name} is deleted.`;
      } });
    if (done) {
      dispatchEvent(new CustomEvent('entities-changed'));
      location.hash = kind === 'subscription' ? link(name.replace(/\/subscriptions\/.*$/i, '')) : '#/';
    }
  }
}

customElements.define('bb-entity', Entity);
