/**
 * The leftovers of kube-proxy 1.36 on a node in each of its modes, as input for the tools. For
 * tests that find or remove them.
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";

/** The differences between the families. */
const PLAN = {
  IPv4: { vip: "10.96.", pod: "10.244.", bits: 32, table: "ip", podCidr: "10.244.0.0/16" },
  IPv6: { vip: "fd00:96::", pod: "fd00:244::", bits: 128, table: "ip6", podCidr: "fd00:244::/64" },
} as const;

/** The amount of leftovers. */
export interface LeftoverOptions {
  readonly family: IpFamily;
  /** Services, each with two endpoints. @default {2} */
  readonly services?: number;
}

const FILTER_JUMPS = [
  'INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL',
  'INPUT -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS',
  'INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES',
  'FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL',
  'FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD',
  'FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  'FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES',
  'OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL',
  'OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
];

const NAT_JUMPS = [
  'PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  'OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES',
  'POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING',
];

const FILTER_CHAINS = "SERVICES EXTERNAL-SERVICES NODEPORTS FORWARD PROXY-FIREWALL PROXY-CANARY"
  .split(" ").map((name) => `KUBE-${name}`);
const NAT_CHAINS = "SERVICES NODEPORTS POSTROUTING MARK-MASQ PROXY-CANARY"
  .split(" ").map((name) => `KUBE-${name}`);

/** Rules of kubelet and of a user, in each built-in chain. Only their owners may change them. */
export function foreignIptablesRules({ family }: LeftoverOptions): string {
  const { pod } = PLAN[family];
  const loopback = family === "IPv6" ? "::1/128" : "127.0.0.0/8";
  const host = family === "IPv6" ? `${pod}99` : `${pod}9.9`;
  return `*mangle
:KUBE-IPTABLES-HINT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A PREROUTING -s ${host} -j MARK --set-xmark 0x1/0x1
-A FORWARD -m comment --comment "a user's own -j KUBE-SERVICES" -j ACCEPT
COMMIT
*nat
:KUBE-KUBELET-CANARY - [0:0]
:MY-CHAIN - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A INPUT -s ${host} -j ACCEPT
-A OUTPUT -s ${host} -j MY-CHAIN
-A POSTROUTING -s ${host} -j MASQUERADE
-A MY-CHAIN -p tcp -m tcp --dport 8443 -j RETURN
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
-A INPUT -j KUBE-FIREWALL
-A INPUT -s ${host} -p tcp -m tcp --dport 22 -j ACCEPT
-A FORWARD -s ${host} -j ACCEPT
-A OUTPUT -j KUBE-FIREWALL
-A OUTPUT -d ${host} -m comment --comment "quoted \\" mark" -j ACCEPT
-A KUBE-FIREWALL ! -s ${loopback} -d ${loopback} -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
COMMIT
`;
}

/** Returns the leftovers of iptables mode, as input of `iptables-restore --noflush`. */
export function kubeProxyIptablesRules({ family, services = 2 }: LeftoverOptions): string {
  const numbers = Array.from({ length: services }, (_, number) => number);
  const { podCidr } = PLAN[family];
  const filter = [
    ...FILTER_CHAINS.map((chain) => `:${chain} - [0:0]`),
    ...FILTER_JUMPS.toReversed().map((jump) => `-I ${jump}`),
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT',
    '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT',
    `-A KUBE-SERVICES -d ${vipOf(family, services)} -p tcp -m comment --comment ` +
    '"ns1/empty:http has no endpoints" -m tcp --dport 80 -j REJECT',
  ];
  const nat = [
    ...NAT_CHAINS.map((chain) => `:${chain} - [0:0]`),
    ...numbers.flatMap((number) => chainsOf(number).map((chain) => `:${chain} - [0:0]`)),
    ...NAT_JUMPS.toReversed().map((jump) => `-I ${jump}`),
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
    '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
    "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
    ...numbers.flatMap((number) => serviceRules(family, { number, podCidr })),
    '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS',
  ];
  return restoreInput({ mangle: [":KUBE-PROXY-CANARY - [0:0]"], filter, nat });
}

/** Returns the leftovers of ipvs mode in iptables; its sets must exist first. */
export function kubeProxyIpvsRules({ family }: LeftoverOptions): string {
  const set = (name: string) => ipvsSetName(family, name);
  return restoreInput({
    mangle: [":KUBE-PROXY-CANARY - [0:0]"],
    nat: [
      ...["SERVICES", "POSTROUTING", "NODE-PORT", "LOAD-BALANCER", "MARK-MASQ"].map((chain) =>
        `:KUBE-${chain} - [0:0]`
      ),
      ...NAT_JUMPS.toReversed().map((jump) => `-I ${jump}`),
      `-A KUBE-SERVICES -m set --match-set ${set("KUBE-CLUSTER-IP")} src,dst -j KUBE-MARK-MASQ`,
      `-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT`,
      `-A KUBE-NODE-PORT -p tcp -m set --match-set ${
        set("KUBE-NODE-PORT-TCP")
      } dst -j KUBE-MARK-MASQ`,
      "-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ",
      "-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
    ],
    filter: [
      ...[
        "FORWARD",
        "NODE-PORT",
        "PROXY-FIREWALL",
        "SOURCE-RANGES-FIREWALL",
        "IPVS-FILTER",
        "IPVS-OUT-FILTER",
      ].map((chain) => `:KUBE-${chain} - [0:0]`),
      '-I FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD',
      '-I INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER',
      '-I INPUT -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT',
      '-I OUTPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER',
      '-I INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL',
      `-A KUBE-IPVS-FILTER -m set --match-set ${set("KUBE-IPVS-IPS")} dst -j REJECT`,
      "-A KUBE-SOURCE-RANGES-FIREWALL -j DROP",
    ],
  });
}

/** The sets of ipvs mode, as input of `ipset restore`. */
export function kubeProxyIpvsSets({ family, services = 2 }: LeftoverOptions): string {
  const kind = `family ${family === "IPv6" ? "inet6" : "inet"} hashsize 1024 maxelem 65536`;
  const set = (name: string) => ipvsSetName(family, name);
  const vips = Array.from({ length: services }, (_, number) => vipOf(family, number));
  return [
    `create ${set("KUBE-CLUSTER-IP")} hash:ip,port ${kind}`,
    `create ${set("KUBE-IPVS-IPS")} hash:ip ${kind}`,
    `create ${set("KUBE-NODE-PORT-TCP")} bitmap:port range 0-65535`,
    `create ${set("KUBE-LOAD-BALANCER-SOURCE-CIDR")} hash:ip,port,net ${kind}`,
    ...vips.map((vip) => `add ${set("KUBE-CLUSTER-IP")} ${vip},tcp:80`),
    ...vips.map((vip) => `add ${set("KUBE-IPVS-IPS")} ${vip}`),
    `add ${set("KUBE-NODE-PORT-TCP")} 30080`,
    "",
  ].join("\n");
}

/** Returns the leftovers of nftables mode, as input of `nft -f -`. */
export function kubeProxyNftRules({ family, services = 2 }: LeftoverOptions): string {
  const { table } = PLAN[family];
  const key = `${family === "IPv6" ? "ipv6_addr" : "ipv4_addr"} . inet_proto . inet_service`;
  const numbers = Array.from({ length: services }, (_, number) => number);
  const chains = numbers.map((number) => `service-${hashOf(number)}-ns1/svc${number}/tcp/http`);
  return [
    `add table ${table} kube-proxy { comment "rules for kube-proxy" ; }`,
    `add map ${table} kube-proxy service-ips { type ${key} : verdict ; }`,
    `add chain ${table} kube-proxy services`,
    `add chain ${table} kube-proxy nat-prerouting { type nat hook prerouting priority -100 ; }`,
    `add chain ${table} kube-proxy nat-output { type nat hook output priority -100 ; }`,
    `add rule ${table} kube-proxy nat-prerouting jump services`,
    `add rule ${table} kube-proxy nat-output jump services`,
    ...chains.flatMap((chain, number) => [
      `add chain ${table} kube-proxy ${chain}`,
      `add rule ${table} kube-proxy ${chain} meta l4proto tcp dnat ${table} to ${
        hostPort(endpointOf(family, { number, endpoint: 0 }), 8080)
      }`,
      `add element ${table} kube-proxy service-ips { ${
        vipOf(family, number)
      } . tcp . 80 : goto ${chain} }`,
    ]),
    `add rule ${table} kube-proxy services ${table} daddr . meta l4proto . th dport vmap @service-ips`,
    "",
  ].join("\n");
}

/** An ipset's name in a family, cut as kube-proxy cuts it. */
export function ipvsSetName(family: IpFamily, name: string): string {
  return family === "IPv6" ? name.replace("KUBE-", "KUBE-6-").slice(0, 31) : name;
}

/** The cluster IP of the n-th Service. */
export function vipOf(family: IpFamily, number: number): string {
  return family === "IPv6"
    ? `fd00:96::${(number + 10).toString(16)}`
    : `10.96.${number >> 8}.${(number & 255)}`;
}

function endpointOf(
  family: IpFamily,
  { number, endpoint }: { readonly number: number; readonly endpoint: number },
): string {
  return family === "IPv6"
    ? `fd00:244::${(number * 2 + endpoint + 10).toString(16)}`
    : `10.${244 + endpoint}.${number >> 8}.${number & 255}`;
}

function hostPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

/** 16 characters of base32 that only this number has. */
function hashOf(number: number): string {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  let text = "";
  for (let i = 0; i < 16; i++) text += digits[(number >> (5 * (i % 5))) & 31];
  return text;
}

/** SVC, EXT, and a SEP for each of two endpoints. */
function chainsOf(number: number): [svc: string, ext: string, a: string, b: string] {
  const hash = hashOf(number);
  return [
    `KUBE-SVC-${hash}`,
    `KUBE-EXT-${hash}`,
    `KUBE-SEP-${hashOf(2 * number)}`,
    `KUBE-SEP-${hashOf(2 * number + 1)}`,
  ];
}

function serviceRules(
  family: IpFamily,
  { number, podCidr }: { readonly number: number; readonly podCidr: string },
): string[] {
  const [svc, ext, ...seps] = chainsOf(number);
  const name = `ns1/svc${number}:http`;
  const vip = vipOf(family, number);
  const match = `-d ${vip} -p tcp -m comment --comment "${name} cluster IP" -m tcp --dport 80`;
  const nodePort = number === 0
    ? [`-A KUBE-NODEPORTS -p tcp -m comment --comment ${name} -m tcp --dport 30080 -j ${ext}`]
    : [];
  return [
    `-A KUBE-SERVICES ${match} -j ${svc}`,
    ...nodePort,
    `-A ${svc} ! -s ${podCidr} ${match} -j KUBE-MARK-MASQ`,
    `-A ${ext} -m comment --comment "masquerade traffic for ${name} external destinations" -j KUBE-MARK-MASQ`,
    `-A ${ext} -j ${svc}`,
    ...seps.flatMap((sep, endpoint) => {
      const address = endpointOf(family, { number, endpoint });
      const target = hostPort(address, 8080);
      const chance = endpoint === 0 ? " -m statistic --mode random --probability 0.5000000000" : "";
      return [
        `-A ${svc} -m comment --comment "${name} -> ${target}"${chance} -j ${sep}`,
        `-A ${sep} -s ${address} -m comment --comment ${name} -j KUBE-MARK-MASQ`,
        `-A ${sep} -p tcp -m comment --comment ${name} -m tcp -j DNAT --to-destination ${target}`,
      ];
    }),
  ];
}

function restoreInput(tables: Readonly<Record<string, readonly string[]>>): string {
  return Object.entries(tables)
    .map(([table, lines]) => [`*${table}`, ...lines, "COMMIT", ""].join("\n"))
    .join("");
}
