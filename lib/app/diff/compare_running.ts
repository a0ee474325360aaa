/**
 * What `diff` asks of a running proxy: it compares the machine with its own plan, between everything
 * else that it does. Nobody else has the plan at hand, and to make it anew takes longer than all of it.
 *
 * @module
 */
import { IP_FAMILIES } from "../../net/ip_address.ts";
import { messageOf } from "../../log/message_of.ts";
import {
  namespacedNameOf,
  serviceKey,
  type ServicePortKey,
} from "../../proxy/service_port_name.ts";
import { BadQuestion } from "../control_server.ts";
import type { FamilyProxy } from "../family_proxy.ts";
import { checkService, servicePortsOf } from "../find_service_ports.ts";
import type { IntrospectedParts } from "../introspection.ts";
import { type DifferenceAnswer, differenceAnswer } from "./difference_answer.ts";
import { compareFamily, type FamilyDifference, type NodeDifference } from "./node_difference.ts";

/** What is compared. */
type ComparedParts = Pick<
  IntrospectedParts,
  "families" | "configuration" | "startUp" | "informers"
>;

/**
 * Answers `/difference`, one question at a time: each holds all that the kernel has in memory.
 * `family=IPv4` and `service=NAMESPACE/NAME` leave the others out.
 */
export class RunningComparison {
  readonly #parts: ComparedParts;
  #last: Promise<unknown> = Promise.resolve();

  constructor(parts: ComparedParts) {
    this.#parts = parts;
  }

  /** Rejects with a BadQuestion where a word of the question is wrong. */
  answer(query: URLSearchParams): Promise<DifferenceAnswer> {
    const answer = this.#last.then(async () => differenceAnswer(await this.#compare(query)));
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #compare(query: URLSearchParams): Promise<NodeDifference> {
    const { configuration, startUp } = this.#parts;
    const proxies = this.#proxiesOf(query.get("family"));
    const keys = this.#chosen(query.get("service"), proxies);
    const families: FamilyDifference[] = [];
    for (const { backend, pipeline, syncer } of proxies) {
      // Where this process serves by itself, it alone knows what is open.
      const serving = backend.mode === "userspace" && (await backend.inspect()).services;
      families.push(
        await compareFamily({
          backend,
          plan: pipeline.plan,
          quarantined: syncer.quarantined,
          ...(serving && { serving }),
        }, { ...(keys && { keys }) }),
      );
    }
    return { mode: configuration().mode, nodeName: startUp.node.name, families };
  }

  #proxiesOf(wanted: string | null): readonly FamilyProxy[] {
    if (wanted !== null && !IP_FAMILIES.some((family) => family === wanted)) {
      throw new BadQuestion(
        `Cannot use '${wanted}' for 'family': expected one of ${IP_FAMILIES.join(", ")}`,
      );
    }
    return this.#parts.families.filter(({ family }) => wanted === null || family === wanted);
  }

  #chosen(service: string | null, proxies: readonly FamilyProxy[]) {
    if (service === null) return undefined;
    const plans = proxies.map(({ pipeline }) => pipeline.plan);
    const found = new Map<unknown, ReadonlySet<ServicePortKey>>(
      plans.map((plan) => [plan, servicePortsOf(plan, service)]),
    );
    const all = [...this.#parts.informers().services.values()].map((each) =>
      serviceKey(namespacedNameOf(each))
    );
    try {
      checkService(service, { plans, all: new Set(all) });
    } catch (error) {
      throw new BadQuestion(messageOf(error), { cause: error });
    }
    return (plan: FamilyProxy["pipeline"]["plan"]) => found.get(plan) ?? new Set<never>();
  }
}
