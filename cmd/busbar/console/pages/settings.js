// The settings of an entity. A change is shown beside what was there, and saved when that was seen.

import { atom } from './api.js';
import { View, announce, button, h, note, problem, table } from './dom.js';
import { open } from './dialog.js';
import { changed, input, part, read, settings, shownAs, valuesOf } from './properties.js';
import { entry } from './rulexml.js';

class Settings extends View {
  async open() {
    try {
      this.doc = await atom('GET', this.path, null, { signal: this.signal });
      this.was = valuesOf(this.doc);
      this.draw();
    } catch (error) {
      this.fails(error);
    }
  }

  draw() {
    this.inputs = new Map();
    this.error = h('div', {});
    const mine = settings.filter((s) => s.kinds.includes(this.entity.kind));
    const make = (s) => {
      const i = input(s, this.was[s.name]);
      i.disabled = s.more === 'new';
      this.inputs.set(s.name, i);
      return i;
    };
    this.show(h('form', { class: 'compose', novalidate: true, onsubmit: (e) => this.review(e) }, part('Settings', mine.filter((s) => s.more === ''), make),
      part('Fixed at the creation', mine.filter((s) => s.more === 'new'), make), part('Options of Busbar', mine.filter((s) => s.more === 'own'), make), this.error,
      h('div', { class: 'actions' }, button('Reset', () => this.draw()), h('button', { type: 'submit', class: 'main' }, 'Review changes'))));
  }

  /** review shows what would change, and has the broker judge it before anybody can save it. */
  async review(e) {
    e.preventDefault();
    this.error.replaceChildren();
    try {
      const next = {};
      for (const s of settings.filter((one) => this.inputs.has(one.name) && one.more !== 'new')) {
        const value = read(s, this.inputs.get(s.name));
        if (shownAs(s, value) !== shownAs(s, this.was[s.name])) {
          next[s.name] = value;
        }
      }
      if (Object.keys(next).length === 0) {
        this.error.replaceChildren(note('Nothing is changed.'));
        return;
      }
      const xml = entry(changed(this.doc.cloneNode(true), this.entity.kind, next));
      await atom('POST', this.path, xml, { validate: true });
      this.confirm(next, xml);
    } catch (error) {
      this.error.replaceChildren(problem(error));
    }
  }

  confirm(next, xml) {
    const lines = Object.entries(next).map(([name, value]) => {
      const s = settings.find((one) => one.name === name);
      return h('tr', {}, h('th', { scope: 'row' }, s.title), h('td', {}, h('del', {}, shownAs(s, this.was[name]))), h('td', {}, h('ins', {}, shownAs(s, value))));
    });
    const error = h('div', {});
    const save = async () => {
      try {
        await atom('PUT', this.path, xml, { update: true });
        box.close();
        announce(`The settings of ${this.path} are saved.`);
        dispatchEvent(new CustomEvent('entities-changed'));
        this.open();
      } catch (wrong) {
        error.replaceChildren(problem(wrong));
      }
    };
    const box = open(`Change ${this.path}`, table('Changes', ['Setting', 'Is', 'Will be'], lines), error,
      h('div', { class: 'actions' }, button('Cancel', () => box.close()), button('Save', save, { class: 'main' })));
  }
}

customElements.define('bb-settings', Settings);
