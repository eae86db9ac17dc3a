// What all pages use to build elements and to write numbers, sizes and times.

const svgSpace = 'http://www.w3.org/2000/svg';

/** h makes an element. A property that is a function is a listener, one that is null or false is left out. */
export function h(tag, props, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    set(e, name, value);
  }
  e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}

function set(e, name, value) {
  if (value === null || value === undefined || value === false) {
    return;
  }
  if (typeof value === 'function') {
    e.addEventListener(name.replace(/^on/, ''), value);
  } else if (name === 'value' || name === 'checked' || name === 'indeterminate') {
    e[name] = value;
  } else {
    e.setAttribute(name, value === true ? '' : String(value));
  }
}

/** svg makes an element of a drawing. */
export function svg(tag, props, ...children) {
  const e = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    e.setAttribute(name, value);
  }
  e.append(...children);
  return e;
}

let ids = 0;

/** id returns one that no other element has. */
export function id(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** View is a part of the page with an end: what it began ends with it. */
export class View extends HTMLElement {
  #ends = new AbortController();
  #asked = new Map();
  #offs = [];

  connectedCallback() {
    this.open();
  }

  disconnectedCallback() {
    this.#ends.abort();
    for (const one of this.#asked.values()) {
      one.abort();
    }
    for (const off of this.#offs.splice(0)) {
      off();
    }
  }

  open() {}

  /** signal aborts what the view has asked for when the view goes. */
  get signal() {
    return this.#ends.signal;
  }

  /**
   * latest returns the signal for a request that begins now. It aborts the earlier request for the same purpose, so that an old
   * answer never replaces a newer one. The request ends with the view as well.
   */
  latest(purpose = 'load') {
    this.#asked.get(purpose)?.abort();
    const one = new AbortController();
    if (this.#ends.signal.aborted) {
      one.abort();
    }
    this.#asked.set(purpose, one);
    return one.signal;
  }

  /** until has a function called when the view goes. */
  until(off) {
    this.#offs.push(off);
  }

  show(...nodes) {
    this.replaceChildren(...nodes.flat(Infinity).filter((n) => n));
  }

  /** fails shows an error in the place of the view. */
  fails(error) {
    if (error.name !== 'AbortError') {
      this.show(problem(error));
    }
  }
}

/** problem is an error as people read it. */
export function problem(error) {
  return h('p', { class: 'problem', role: 'alert' }, h('strong', {}, 'Error: '), error.message);
}

/** note says in words that there is nothing, or what to do. */
export function note(...text) {
  return h('p', { class: 'note' }, ...text);
}

/** button makes a button; kind is 'main', 'danger' or nothing. */
export function button(label, onclick, props = {}) {
  return h('button', { type: 'button', ...props, onclick }, label);
}

/** field makes a labelled input. */
export function field(label, input, hint) {
  input.id ||= id('f');
  const help = hint ? h('small', { id: `${input.id}-help` }, hint) : null;
  if (help) {
    input.setAttribute('aria-describedby', help.id);
  }
  if (input.type === 'checkbox') {
    return h('div', { class: 'field check' }, input, h('label', { for: input.id }, label), help);
  }
  return h('div', { class: 'field' }, h('label', { for: input.id }, label), input, help);
}

/** select makes a list to choose from: options are texts, or pairs of value and text. */
export function select(options, value, props = {}) {
  const list = options.map((o) => (Array.isArray(o) ? o : [o, o]));
  return h('select', props, list.map(([v, text]) => h('option', { value: v, selected: v === value }, text)));
}

/** table makes a table with a caption for screen readers. A column is a text, or a text and a class. */
export function table(caption, columns, rows, props = {}) {
  const heads = columns.map((c) => (Array.isArray(c) ? h('th', { scope: 'col', class: c[1] }, c[0]) : h('th', { scope: 'col' }, c)));
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, h('table', props,
    h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, heads)), h('tbody', {}, rows)));
}

export function count(n) {
  return n === undefined || n === null ? '–' : Number(n).toLocaleString('en');
}

/** many writes a number with its word. */
export function many(n, word) {
  return `${count(n)} ${word}${n === 1 ? '' : 's'}`;
}

export function bytes(n) {
  if (n === undefined || n === null) {
    return '–';
  }
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  let left = n;
  while (left >= 1024 && at < units.length - 1) {
    left /= 1024;
    at += 1;
  }
  return `${at === 0 ? left : left.toFixed(1)} ${units[at]}`;
}

/** moment writes a time of the browser's zone; the title has it in UTC. */
export function moment(text) {
  if (!text) {
    return '–';
  }
  const t = new Date(text);
  const two = (n) => String(n).padStart(2, '0');
  const shown = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())} ` +
    `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  return h('time', { datetime: t.toISOString(), title: t.toISOString() }, shown);
}

/** span writes milliseconds as people say them. */
export function span(ms) {
  const parts = [[86400000, 'd'], [3600000, 'h'], [60000, 'min'], [1000, 's']];
  let left = ms;
  const said = [];
  for (const [size, unit] of parts) {
    const n = Math.floor(left / size);
    if (n > 0 && said.length < 2) {
      said.push(`${n} ${unit}`);
    }
    left -= n * size;
  }
  return said.join(' ') || `${Math.round(ms)} ms`;
}

/** announce tells screen readers, and shows a line for a moment. */
export function announce(text) {
  const place = document.querySelector('#said');
  if (!place) {
    return;
  }
  place.textContent = text;
  place.classList.add('fresh');
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => place.classList.remove('fresh'), 4000);
}
