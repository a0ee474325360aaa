/**
 * The text of `iptables-save` in a form that two states of a node can be compared in: what is left
 * out or sorted has no meaning for a packet.
 *
 * @module
 */

/** By table and chain, in the order of their names: the policy, then the rules in theirs. */
export type IptablesNormalForm = Readonly<Record<string, readonly string[]>>;

/** Of one family. */
export function iptablesNormalForm(saved: string): IptablesNormalForm {
  const chains = new Map<string, string[]>();
  let table = "";
  for (const line of saved.split("\n")) {
    const [word = "", chain = ""] = line.split(" ", 2);
    if (word.startsWith("*")) table = word.slice(1);
    else if (word.startsWith(":")) chains.set(`${table} ${word.slice(1)}`, [`policy ${chain}`]);
    else if (word === "-A") addRule(chains.get(`${table} ${chain}`), line);
  }
  return Object.fromEntries([...chains].sort(([a], [b]) => a < b ? -1 : 1));
}

function addRule(rules: string[] | undefined, line: string): void {
  // Matches apply in any order: kube-proxy writes its comments first, we ours last.
  const rule = line.split(/ (?=! |(?<!! )-)/).sort().join(" ");
  // The kubelet's chain and ours are one: its place depends on who came first.
  if (line.endsWith("-j KUBE-FIREWALL")) rules?.splice(1, 0, rule);
  else rules?.push(rule);
}
