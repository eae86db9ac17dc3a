// Rules of subscriptions in the words of the management API.

const connect = 'http://schemas.microsoft.com/netservices/2010/10/servicebus/connect';
const atomSpace = 'http://www.w3.org/2005/Atom';
const instance = 'http://www.w3.org/2001/XMLSchema-instance';

export const fields = ['Label', 'MessageId', 'CorrelationId', 'SessionId', 'To', 'ReplyTo', 'ReplyToSessionId', 'ContentType'];

/** escape writes a text for XML. */
export function escape(text) {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** entry wraps a description as the management API takes it. */
export function entry(description) {
  return `<entry xmlns="${atomSpace}"><content type="application/xml">${description}</content></entry>`;
}

function childText(e, name) {
  return [...(e?.children ?? [])].find((c) => c.localName === name)?.textContent;
}

/** rulesOf reads a feed of rules. */
export function rulesOf(feed) {
  return [...feed.getElementsByTagNameNS(connect, 'RuleDescription')].map((d) => {
    const filter = [...d.children].find((c) => c.localName === 'Filter');
    const action = [...d.children].find((c) => c.localName === 'Action');
    const kind = filter?.getAttributeNS(instance, 'type') ?? 'TrueFilter';
    const correlation = {};
    for (const name of fields) {
      const text = childText(filter, name);
      if (text !== undefined) {
        correlation[name] = text;
      }
    }
    const properties = [...filter.getElementsByTagNameNS(connect, 'KeyValueOfstringanyType')].map((p) => {
      const value = [...p.children].find((c) => c.localName === 'Value');
      return { name: childText(p, 'Key'), type: (value?.getAttributeNS(instance, 'type') ?? 'string').replace(/^.*:/, ''), value: value?.textContent ?? '' };
    });
    return { name: childText(d, 'Name'), kind, sql: childText(filter, 'SqlExpression') ?? '', correlation, properties, action: childText(action, 'SqlExpression') ?? '' };
  });
}

/** said writes a filter as people read it. */
export function said(r) {
  switch (r.kind) {
    case 'TrueFilter':
      return 'every message';
    case 'FalseFilter':
      return 'no message';
    case 'SqlFilter':
      return r.sql;
    default:
      return [...Object.entries(r.correlation).map(([name, value]) => `${name} = ${value}`),
        ...r.properties.map((p) => `${p.name} = ${p.value} (${p.type})`)].join(', ') || 'nothing is asked for';
  }
}

/** ruleXML writes a rule. */
export function ruleXML(r) {
  let filter = '';
  switch (r.kind) {
    case 'SqlFilter':
      filter = `<SqlExpression>${escape(r.sql)}</SqlExpression>`;
      break;
    case 'CorrelationFilter':
      filter = fields.filter((name) => r.correlation[name]).map((name) => `<${name}>${escape(r.correlation[name])}</${name}>`).join('') + propertiesXML(r.properties);
      break;
    default:
  }
  const action = r.action ? `<Action i:type="SqlRuleAction"><SqlExpression>${escape(r.action)}</SqlExpression></Action>` : '<Action i:type="EmptyRuleAction"/>';
  return entry(`<RuleDescription xmlns="${connect}" xmlns:i="${instance}"><Filter i:type="${r.kind}">${filter}</Filter>${action}<Name>${escape(r.name)}</Name></RuleDescription>`);
}

function propertiesXML(all) {
  if (all.length === 0) {
    return '';
  }
  const one = (p) => `<KeyValueOfstringanyType><Key>${escape(p.name)}</Key><Value i:type="s:${p.type}" xmlns:s="http://www.w3.org/2001/XMLSchema">${escape(p.value)}</Value></KeyValueOfstringanyType>`;
  return `<Properties>${all.map(one).join('')}</Properties>`;
}
