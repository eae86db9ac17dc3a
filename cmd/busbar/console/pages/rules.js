// The rules of a subscription, and a tester: which rules select a message, and what they change of it.

import { atom, call, may, pathOf } from './api.js';
import { View, announce, button, field, h, note, problem, select, table } from './dom.js';
import { open, work } from './dialog.js';
import { fields, ruleXML, rulesOf, said } from './rulexml.js';

const kinds = [['SqlFilter', 'SQL'], ['CorrelationFilter', 'correlation'], ['TrueFilter', 'every message'], ['FalseFilter', 'no message']];
const types = ['string', 'int', 'long', 'double', 'decimal', 'boolean', 'dateTime', 'guid'];

/** Properties is a list of names, types and values. */
export class Properties {
  constructor(all = []) {
    this.list = h('div', { class: 'properties' });
    for (const p of all) {
      this.add(p);
    }
  }

  add(p = { name: '', type: 'string', value: '' }) {
    const inputs = [h('input', { 'aria-label': 'Name of the property', placeholder: 'name', spellcheck: 'false', value: p.name }),
      select(types.includes(p.type) ? types : [p.type, ...types], p.type, { 'aria-label': 'Type of the property' }),
      h('input', { 'aria-label': 'Value of the property', placeholder: 'value', spellcheck: 'false', value: p.value })];
    const row = h('div', { class: 'property' }, inputs, button('Remove', () => row.remove(), { class: 'quiet' }));
    row.read = () => ({ name: inputs[0].value.trim(), type: inputs[1].value, value: inputs[2].value });
    this.list.append(row);
  }

  content() {
    return [this.list, button('Add a property', () => this.add())];
  }

  read() {
    const all = [...this.list.children].map((row) => row.read());
    if (all.some((p) => p.name === '')) {
      throw new Error('A property has no name.');
    }
    return all;
  }
}

class Rules extends View {
  open() {
    this.body = h('div', {});
    this.show(this.body, this.tester());
    this.load();
  }

  async load() {
    try {
      const feed = await atom('GET', `${this.path}/Rules`, null, { signal: this.latest() });
      this.draw(rulesOf(feed));
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw(all) {
    const lines = all.map((r) => h('tr', {}, h('th', { scope: 'row' }, r.name), h('td', {}, kinds.find(([k]) => k === r.kind)?.[1] ?? r.kind), h('td', { class: 'mono' }, said(r)),
      h('td', { class: 'mono' }, r.action || ''), h('td', { class: 'acts' }, may('Manage', this.path) ? [button('Edit…', () => this.edit(r), { 'aria-label': `Edit rule ${r.name}` }),
        button('Delete…', () => this.remove(r), { class: 'danger', 'aria-label': `Delete rule ${r.name}` })] : null)));
    this.body.replaceChildren(h('div', { class: 'bar' }, may('Manage', this.path) ? button('New rule…', () => this.edit(null)) : null),
      all.length === 0 ? note('The subscription has no rule, so it selects nothing.') : table(`Rules of ${this.path}`, ['Name', 'Kind', 'Filter', 'Action', ['Acts', 'acts']], lines));
  }

  edit(r) {
    const name = h('input', { value: r?.name ?? '', spellcheck: 'false', readonly: Boolean(r) });
    const kind = select(kinds, r?.kind ?? 'SqlFilter', { onchange: () => turn() });
    const sql = h('textarea', { rows: 3, spellcheck: 'false', value: r?.kind === 'SqlFilter' ? r.sql : '' });
    const action = h('textarea', { rows: 2, spellcheck: 'false', value: r?.action ?? '' });
    const inputs = new Map(fields.map((f) => [f, h('input', { spellcheck: 'false', value: r?.correlation[f] ?? '' })]));
    const properties = new Properties(r?.properties);
    const ofSql = h('div', {}, field('SQL filter', sql, "For example: sys.Label = 'eu' AND priority > 3"));
    const ofCorrelation = h('div', {}, h('div', { class: 'grid' }, fields.map((f) => field(f, inputs.get(f)))), h('h3', {}, 'Properties'), properties.content());
    const error = h('div', {});
    const turn = () => {
      ofSql.hidden = kind.value !== 'SqlFilter';
      ofCorrelation.hidden = kind.value !== 'CorrelationFilter';
    };
    turn();
    const save = async (e) => {
      e.preventDefault();
      error.replaceChildren();
      try {
        const next = { name: name.value.trim(), kind: kind.value, sql: sql.value, action: action.value.trim(), properties: properties.read(),
          correlation: Object.fromEntries([...inputs].map(([f, input]) => [f, input.value])) };
        if (next.name === '') {
          throw new Error('Name the rule.');
        }
        await atom('PUT', `${this.path}/Rules/${next.name}`, ruleXML(next), { update: Boolean(r) });
        box.close();
        announce(`The rule ${next.name} is saved.`);
        this.load();
        dispatchEvent(new CustomEvent('entities-changed'));
      } catch (wrong) {
        error.replaceChildren(problem(wrong));
      }
    };
    const box = open(r ? `Rule ${r.name}` : 'New rule', h('form', { class: 'compose', novalidate: true, onsubmit: save }, h('div', { class: 'grid' }, field('Name', name), field('Kind of filter', kind)), ofSql, ofCorrelation,
      field('Action', action, 'For example: SET routed = TRUE; REMOVE region'), error, h('div', { class: 'actions' }, button('Cancel', () => box.close()), h('button', { type: 'submit', class: 'main' }, 'Save'))));
    box.classList.add('wide');
  }

  async remove(r) {
    const done = await work({ title: `Delete rule ${r.name}`, verb: 'Delete', danger: true, text: `The subscription selects by the rule no more: ${said(r)}.`,
      run: async () => {
        await atom('DELETE', `${this.path}/Rules/${r.name}`);
        return 'The rule is deleted.';
      } });
    if (done) {
      this.load();
      dispatchEvent(new CustomEvent('entities-changed'));
    }
  }

  /** tester tries the rules, or a filter that is typed, on a message that is described. */
  tester() {
    const sql = h('input', { spellcheck: 'false', size: 50 });
    const action = h('input', { spellcheck: 'false', size: 50 });
    const inputs = new Map(fields.map((f) => [f, h('input', { spellcheck: 'false' })]));
    const properties = new Properties();
    const verdicts = h('div', { role: 'status' });
    const test = async (e) => {
      e.preventDefault();
      verdicts.replaceChildren();
      try {
        const system = Object.fromEntries([...inputs].filter(([, i]) => i.value !== '').map(([f, i]) => [f, i.value]));
        const ask = { message: { system, properties: properties.read() } };
        if (sql.value.trim() || action.value.trim()) {
          Object.assign(ask, { sql: sql.value, action: action.value });
        }
        const got = await call('POST', `/api/entities/${pathOf(this.path)}/test-rules`, {}, { body: JSON.stringify(ask) });
        verdicts.replaceChildren(table('What the rules do with the message', ['Rule', 'Selects', 'Changes'], got.verdicts.map((v) => h('tr', {}, h('th', { scope: 'row' }, v.rule || 'the filter above'),
          h('td', {}, v.error ? 'error' : v.selected ? '✓ yes' : '✗ no'), h('td', { class: 'mono' }, v.error ?? (v.changes ?? []).join('; '))))));
      } catch (wrong) {
        verdicts.replaceChildren(problem(wrong));
      }
    };
    return h('section', { class: 'tester', 'aria-label': 'Test rules' }, h('h2', {}, 'Test on a message'), h('form', { class: 'compose', novalidate: true, onsubmit: test },
      field('Filter to try', sql, 'Empty: all rules above.'), field('Action to try', action), h('div', { class: 'grid' }, fields.map((f) => field(f, inputs.get(f)))), h('h3', {}, 'Properties of the message'),
      properties.content(), h('div', { class: 'actions' }, h('button', { type: 'submit', class: 'main' }, 'Test'))), verdicts);
  }
}

customElements.define('bb-rules', Rules);
