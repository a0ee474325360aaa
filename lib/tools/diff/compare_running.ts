import { SERVICE } from "../../api/kinds/service.ts";
import type { Clock } from "../../os/clock.ts";
import { messageOf } from "../../log/message_of.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { askedFamily, BadQuestion } from "../control/control_server.ts";
import type { FamilyProxy } from "../../app/service/family_proxy.ts";
import { checkService, servicePortsOf } from "../explain/find_service_ports.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import { type DifferenceAnswer, differenceAnswer } from "./difference_answer.ts";
import {
  compareFamily,
  type CompareOptions,
  type FamilyDifference,
  type NodeDifference,
} from "./node_difference.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { compareSettled } from "./settled_comparison.ts";

/** The parts of a run that the comparison reads. */
type ComparedParts = Pick<ObservedRun, "services" | "configuration" | "startUp" | "informers">;

/**
 * Answers `/difference?family=IPv4&service=NAMESPACE/NAME` with the live plan, one request at a time: each
 * holds all rules of the kernel in memory.
 */
export class RunningComparison {
  readonly #clock: Pick<Clock, "sleep">;
  readonly #parts: ComparedParts;
  #last: Promise<unknown> = Promise.resolve();

  constructor({ clock }: { readonly clock: Pick<Clock, "sleep"> }, parts: ComparedParts) {
    this.#clock = clock;
    this.#parts = parts;
  }

  /** Rejects with a BadQuestion for an invalid query. An aborted `signal` means the client has gone. */
  answer(query: URLSearchParams, signal?: AbortSignal): Promise<DifferenceAnswer> {
    const answer = this.#last.then(async () => {
      signal?.throwIfAborted();
      return differenceAnswer(await this.#compare(query));
    });
    this.#last = answer.catch(() => {});
    return answer;
  }

  async #compare(query: URLSearchParams): Promise<NodeDifference> {
    const { configuration, startUp } = this.#parts;
    const proxies = this.#proxiesOf(query.get("family"));
    const keys = this.#chosen(query.get("service"), proxies);
    const families: FamilyDifference[] = [];
    for (const proxy of proxies) families.push(await this.#compareProxy(proxy, keys));
    return { mode: configuration.mode, nodeName: startUp.node.name, families };
  }

  #compareProxy(
    { backend, pipeline, loop }: FamilyProxy,
    keys: CompareOptions["keys"],
  ): Promise<FamilyDifference> {
    return compareSettled({ clock: this.#clock }, loop, async () => {
      // Only this process knows its open sockets.
      const serving = MODE_TRAITS[backend.mode].forwardsItself &&
        (await backend.inspect()).services;
      return await compareFamily({
        backend,
        plan: pipeline.plan,
        quarantined: loop.quarantined,
        ...(serving && { serving }),
      }, { ...(keys && { keys }) });
    });
  }

  #proxiesOf(wanted: string | null): readonly FamilyProxy[] {
    const { families } = this.#parts.services;
    if (askedFamily(wanted) === undefined) return families;
    const found = families.filter(({ family }) => family === wanted);
    if (found.length > 0) return found;
    const served = families.map(({ family }) => family).join(" and ");
    throw new BadQuestion(`Cannot compare ${wanted}: this kube-relay serves ${served} alone`);
  }

  #chosen(service: string | null, proxies: readonly FamilyProxy[]): CompareOptions["keys"] {
    if (service === null) return undefined;
    const plans = proxies.map(({ pipeline }) => pipeline.plan);
    const all = [...this.#parts.informers.of(SERVICE).values()].map((each) =>
      serviceKey(namespacedNameOf(each))
    );
    try {
      checkService(service, { plans, all: new Set(all) });
    } catch (error) {
      throw new BadQuestion(messageOf(error), { cause: error });
    }
    // The compared plan may be a later one.
    return (plan) => servicePortsOf(plan, service);
  }
}
