/**
 * Which rules of a chain a packet meets, by what is known of its sender. Pure.
 *
 * @module
 */
import { cidrContains, hostCidr, tryParseCidr } from "../../lib/net/cidr.ts";
import { tryParseIpAddress } from "../../lib/net/ip_address.ts";
import type { PacketSender } from "../../lib/proxy/packet.ts";
import type { ExplainedOrigin } from "../../lib/proxy/packet_explanation.ts";

/** What is known of the sender. */
export interface RuleContext {
  readonly sender: PacketSender;
  readonly origin: ExplainedOrigin;
}

const SOURCE = /(^| )(! )?-s (\S+)/;
const INTERFACE = /(^| )(! )?-i (\S+)/;
/** It takes the packet; what comes after it in its chain is not reached. */
const TAKES = /-[jg] (DNAT|KUBE-(SVC|SVL|EXT)-)/;
/** Unless one of these lets it pass. */
const CHANCE = / -m statistic | --update /;

/** The rules as far as the packet comes, without those that are for other senders. */
export function rulesMet(rules: readonly string[], context: RuleContext): readonly string[] {
  const met: string[] = [];
  for (const rule of rules) {
    if (!matchesSender(rule, context)) continue;
    met.push(rule);
    if (TAKES.test(rule) && !CHANCE.test(rule)) break;
  }
  return met;
}

function matchesSender(rule: string, { sender, origin }: RuleContext): boolean {
  if (rule.includes("--src-type LOCAL") && !origin.isFromNode) return false;
  const [, , notSource, source] = SOURCE.exec(rule) ?? [];
  if (source !== undefined && isIn(source, sender) === (notSource !== undefined)) return false;
  const [, , notInterface, name] = INTERFACE.exec(rule) ?? [];
  return name === undefined || arrivesBy(name, sender) !== (notInterface !== undefined);
}

function isIn(text: string, { address }: PacketSender): boolean {
  const single = tryParseIpAddress(text);
  const range = single === undefined ? tryParseCidr(text) : hostCidr(single);
  return range !== undefined && cidrContains(range, address);
}

function arrivesBy(name: string, { interfaceName }: PacketSender): boolean {
  const plain = name.replaceAll('"', "");
  if (!plain.endsWith("+")) return interfaceName === plain;
  return interfaceName?.startsWith(plain.slice(0, -1)) === true;
}
