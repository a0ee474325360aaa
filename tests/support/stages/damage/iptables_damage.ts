/** Damage to the rules of iptables mode, for the Services of `damaged_services.ts`. */
import { textRows } from "../../texts/text_rows.ts";
import type { DamageRow } from "./damaged_modes.ts";

const VIPS = "KUBE-VIP-ac1e0000-22";
const BRANCH = "KUBE-VIP-ac1e0100-26";
const LEAF = "KUBE-VIP-ac1e0100-28";
const STICKY = "KUBE-SVC-OUV26K4U5MKRAH7O";
const PORTALS = '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES';

/** Objects of each kind, with each kind of damage: lines for one table, and the findings. */
export const IPTABLES_DAMAGE: readonly DamageRow[] = textRows(`
a jump is deleted
  nat: -D PREROUTING ${PORTALS}
  = missing jump nat PREROUTING
a jump is narrowed
  nat: -R POSTROUTING 1 -p tcp -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
  = altered jump nat POSTROUTING
a jump is left that kube-proxy has in another mode
  nat: -A PREROUTING -p udp ${PORTALS}
  = extra jump nat PREROUTING
jumps are reordered
  filter: -D FORWARD 1
  -A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
  = reordered jump filter FORWARD
the jump that the kubelet has too is deleted
  filter: -D OUTPUT -j KUBE-FIREWALL
  = missing jump filter OUTPUT
the canary of table nat is deleted
  nat: -F KUBE-PROXY-CANARY
  -X KUBE-PROXY-CANARY
  = missing chain nat KUBE-PROXY-CANARY
a chain of addresses is deleted with what leads there
  nat: -D ${BRANCH} 1
  -F ${LEAF}
  -X ${LEAF}
  = missing chain nat ${LEAF}
  = missing rule nat ${BRANCH}, rule 1
the chain of a Service is deleted with what leads there
  nat: -D ${VIPS} 5
  -F ${STICKY}
  -X ${STICKY}
  = missing chain nat ${STICKY} [ns/sticky]
  = missing rule nat ${VIPS}, rule 5 [ns/sticky]
the chain of a missing Service is left over
  nat: :KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
  -A KUBE-SVC-AAAAAAAAAAAAAAAA -j RETURN
  = extra chain nat KUBE-SVC-AAAAAAAAAAAAAAAA
the chain of node ports is emptied
  nat: -F KUBE-NODEPORTS
  = missing rule nat KUBE-NODEPORTS, rule 1 [ns/web]
  = missing rule nat KUBE-NODEPORTS, rule 2 [ns/web]
  = missing rule nat KUBE-NODEPORTS, rule 3 [ns/web]
  = missing rule nat KUBE-NODEPORTS, rule 4 [ns/web]
  = missing rule nat KUBE-NODEPORTS, rule 5 [ns/web]
  = missing rule nat KUBE-NODEPORTS, rule 6 [ns/local]
  = missing rule nat KUBE-NODEPORTS, rule 7 [ns/local]
the rule of an endpoint is deleted
  nat: -D ${VIPS} 3
  = missing rule nat ${VIPS}, rule 3 [ns/web]
the rule of an endpoint leads to another one
  nat: -R ${VIPS} 4 -d 172.30.0.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.99:80
  = altered rule nat ${VIPS}, rule 4 [ns/web]
a rule is inserted among those of Services
  nat: -I ${VIPS} 2 -d 172.30.0.1/32 -j RETURN
  = extra rule nat ${VIPS}, rule 2
rules of a Service are reordered
  nat: -D ${VIPS} 2
  -I ${VIPS} 4 -d 172.30.0.1/32 -p tcp -m tcp --dport 80 -m statistic --mode random --probability 0.33333333349 -m comment --comment "ns/web cluster IP" -j DNAT --to-destination 10.1.0.1:8080
  = reordered rule nat ${VIPS}, rule 2 [ns/web]
a Service without endpoints is not refused
  filter: -D KUBE-SERVICES 1
  = missing rule filter KUBE-SERVICES, rule 1 [ns/empty]
the rule in the kubelet's chain is deleted
  filter: -F KUBE-FIREWALL
  = missing rule filter KUBE-FIREWALL, rule 1
`).map(([name, ...cells]) => {
  const [first = "", ...lines] = cells.filter((cell) => !cell.startsWith("= "));
  const [, table, line] = /^(\w+): (.*)$/.exec(first)!;
  const found = cells.flatMap((cell) => cell.startsWith("= ") ? [cell.slice(2)] : []);
  return { name, damage: [`*${table}`, line, ...lines, "COMMIT", ""].join("\n"), found };
});
