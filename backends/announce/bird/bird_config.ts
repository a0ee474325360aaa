/**
 * The configuration of BIRD 2 for a plan. Pure.
 *
 * Announced prefixes are static routes of BIRD's own tables. The kernel protocols export only routes
 * that BGP received, so an announced address never becomes a blackhole route of the node. A static
 * route carries the roles that it is announced to as attributes. So a change of one prefix changes
 * one route, and no filter, whose change would make BIRD send every route again.
 *
 * @module
 */
import type { Quarantined } from "../../../lib/engine/data_plane.ts";
import { cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import type { AnnouncedPrefix, BgpPeer, BgpPlan } from "../../../lib/routing/bgp_plan.ts";
import { atOnce } from "../../netfilter/in_steps.ts";
import { filterLines, peerLines } from "./bird_peer.ts";
import {
  announcesTo,
  CONFIGURATION_ID,
  FAMILY_DIGIT,
  LEARNED_FROM_MESH,
  quoted,
  ROLES,
} from "./bird_text.ts";

/** A peer (`peer NAME`) or an announced prefix (`prefix 10.0.0.1/32`) of the plan. */
export type BgpItem = `peer ${string}` | `prefix ${string}`;

/**
 * The first line of each file that kube-relay writes for BIRD. A file without it belongs to another
 * program or the administrator, and is never replaced.
 */
export const OWNER_LINE = "# Written by kube-relay. Changes are overwritten.";

/** The inputs of a configuration besides the plan. */
export interface BirdConfigOptions {
  /** The file that defines the passwords of peers. */
  readonly secretsFile: string;
  /** Peers that are left out, by name, with the reason, e.g. an unreadable password file. */
  readonly leftOut?: ReadonlyMap<string, string>;
  /** Peers that stay shut down because they sent too many prefixes. */
  readonly shutDown?: ReadonlySet<string>;
}

/** A configuration and the items of the plan that it does not contain. */
export interface BirdConfig {
  /** Identifies the text: the value of the constant {@linkcode CONFIGURATION_ID}. */
  readonly id: string;
  readonly text: string;
  readonly quarantined: readonly Quarantined<BgpItem>[];
}

/** Renders a plan. The same plan and options give the same bytes. Passwords are not part of it. */
export function birdConfig(plan: BgpPlan, options: BirdConfigOptions): BirdConfig {
  return atOnce(birdConfigSteps(plan, options));
}

const PREFIXES_PER_PIECE = 64;

/** As {@linkcode birdConfig}, in steps: 10,000 prefixes take a tenth of a second. */
export function* birdConfigSteps(
  plan: BgpPlan,
  options: BirdConfigOptions,
): Generator<void, BirdConfig> {
  const quarantined: Quarantined<BgpItem>[] = [];
  /** Renders an item, or notes why BIRD would refuse it. */
  const attempt = <T>(key: BgpItem, render: () => T): T[] => {
    try {
      return [render()];
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      quarantined.push({ key, reason: error.message });
      return [];
    }
  };
  const sections = plan.peers.flatMap((peer) =>
    attempt(`peer ${peer.name}`, () => {
      const reason = options.leftOut?.get(peer.name);
      if (reason !== undefined) throw new RangeError(reason);
      const isShutDown = options.shutDown?.has(peer.name) ?? false;
      return { peer, lines: peerLines(plan, peer, { isShutDown }) };
    })
  );
  const rendered = sections.map(({ peer }) => peer);
  const pieces = [textOf(globalLines(plan, rendered, options))];
  for (const family of IP_FAMILIES) {
    const digit = FAMILY_DIGIT[family];
    // The table of a family is BIRD's default one: `master4` or `master6`.
    pieces.push(textOf([`protocol static announced${digit} {`, `  ipv${digit};`]));
    const announced = plan.announced.filter(({ prefix }) => cidrFamilyOf(prefix) === family);
    for (let at = 0; at < announced.length; at += PREFIXES_PER_PIECE) {
      const lines = announced.slice(at, at + PREFIXES_PER_PIECE).flatMap((one) =>
        attempt(`prefix ${one.prefix}`, () => routeLines(one)).flat()
      );
      pieces.push(textOf(lines.map((line) => `  ${line}`)));
      yield;
    }
    pieces.push("}\n");
  }
  pieces.push(textOf([
    ...IP_FAMILIES.flatMap((family) => kernelLines(plan, family)),
    ...supportLines(rendered),
    ...filterLines(plan, rendered),
    ...sections.flatMap(({ lines }) => lines),
  ]));
  const ids: string[] = [];
  for (const piece of pieces) {
    ids.push(contentId(piece));
    yield;
  }
  const id = contentId(ids.join());
  const head = `${OWNER_LINE}\ndefine ${CONFIGURATION_ID} = ${quoted(id)};\n`;
  return { id, text: head + pieces.join(""), quarantined };
}

function textOf(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

function globalLines(
  plan: BgpPlan,
  peers: readonly BgpPeer[],
  { secretsFile }: BirdConfigOptions,
): string[] {
  const restarts = peers.flatMap(({ gracefulRestartSeconds: seconds }) => seconds ?? []);
  return [
    ...(peers.some(({ passwordFile }) => passwordFile !== undefined)
      ? [`include ${quoted(secretsFile)};`]
      : []),
    "log stderr all;",
    "timeformat protocol iso long;",
    "timeformat route iso long;",
    `router id ${plan.routerId};`,
    // After a start BIRD announces nothing to peers that restart gracefully until all of them are
    // back or this time is over. Peers drop the former routes after the time of their session, so it
    // has to be much shorter. BIRD calls a peer twice in it; a peer that is down must not delay the
    // first announcements of a node for longer.
    ...(restarts.length > 0
      ? [`graceful restart wait ${Math.min(LONGEST_WAIT_SECONDS, restartWait(restarts))};`]
      : []),
    ...ROLES.map((role) => `attribute int ${announcesTo(role)};`),
    `attribute int ${LEARNED_FROM_MESH};`,
    "protocol device {",
    "}",
  ];
}

const LONGEST_WAIT_SECONDS = 15;

function restartWait(restartSeconds: readonly number[]): number {
  return Math.max(2, Math.floor(Math.min(...restartSeconds) / 4));
}

function routeLines(announced: AnnouncedPrefix): string[] {
  const { prefix, to, communities, largeCommunities, localPreference } = announced;
  return [
    `route ${prefix} blackhole {`,
    ...ROLES.filter((role) => to.includes(role)).map((role) => `  ${announcesTo(role)} = 1;`),
    ...communities.map((text) =>
      `  bgp_community.add((${numbersOf(text, { count: 2, most: 65_535 })}));`
    ),
    ...largeCommunities.map((text) =>
      `  bgp_large_community.add((${numbersOf(text, { count: 3, most: 4_294_967_295 })}));`
    ),
    ...(localPreference === undefined ? [] : [`  bgp_local_pref = ${localPreference};`]),
    "};",
  ];
}

/** Reads a community; throws a RangeError that says what would be right. */
function numbersOf(
  text: string,
  { count, most }: { readonly count: number; readonly most: number },
): string {
  const numbers = /^\d{1,10}(:\d{1,10})*$/.test(text) ? text.split(":").map(Number) : [];
  if (numbers.length === count && numbers.every((number) => number <= most)) {
    return numbers.join(",");
  }
  throw new RangeError(
    `Cannot announce with community '${text}': expected ${count} numbers from 0 to ${most}, ` +
      "separated by colons",
  );
}

/**
 * Routes of peers go into the kernel. A route whose next hop is unknown is not exported: the kernel
 * would get an `unreachable` route, which hides a shorter prefix that works.
 */
function kernelLines({ imports }: BgpPlan, family: IpFamily): string[] {
  return [
    `protocol kernel imported${FAMILY_DIGIT[family]} {`,
    `  kernel table ${imports.table};`,
    `  metric ${imports.metric};`,
    // Routes that another program removed come back.
    "  scan time 60;",
    // Routes of an earlier BIRD stay until its peers are back.
    "  graceful restart on;",
    `  ipv${FAMILY_DIGIT[family]} {`,
    "    import none;",
    "    export where source = RTS_BGP && dest = RTD_UNICAST;",
    "  };",
    "}",
  ];
}

/** The protocols that only some sessions need. */
function supportLines(peers: readonly BgpPeer[]): string[] {
  const interval = ["min rx interval 200 ms;", "min tx interval 200 ms;", "multiplier 3;"];
  return [
    // Next hops that a distant peer sends are looked up among the networks of the node.
    ...(peers.some(({ multihopTtl }) => multihopTtl !== undefined)
      ? [
        "ipv4 table connected4;",
        "ipv6 table connected6;",
        "protocol direct connected {",
        "  ipv4 { table connected4; };",
        "  ipv6 { table connected6; };",
        "}",
      ]
      : []),
    ...(peers.some(({ bfd }) => bfd)
      ? [
        "protocol bfd liveness {",
        `  interface "*" { ${interval.join(" ")} };`,
        `  multihop { ${interval.join(" ")} };`,
        "}",
      ]
      : []),
  ];
}
