import { SERVICE } from "../../api/kinds/service.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { PlannedNode } from "../offline/plan_objects.ts";
import { explainEnds, type ExplainReport } from "./explain_report.ts";
import { knownNodeAddresses } from "./known_addresses.ts";

/** Explains by plans alone. Throws as {@linkcode explainEnds}. */
export async function explainPlanned(
  { clock }: { readonly clock: Clock },
  ends: { readonly from: string; readonly to: string },
  { planned, notAsked }: { readonly planned: PlannedNode; readonly notAsked: string },
): Promise<ExplainReport> {
  const { mode, nodeName, plans, informers, node, configuration: { proxy } } = planned;
  const others = [...plans.values()].flatMap(({ shared }) => shared.nodePortAddresses);
  await using backends = new IdleBackends(planned);
  return await explainEnds({ clock }, ends, {
    mode,
    nodeName,
    plans,
    nodeAddresses: knownNodeAddresses({ proxy, nodeName, mode, node, others }),
    services: () => informers.of(SERVICE).values(),
    backend: (family) => backends.of(family),
    quarantined: () => [],
    machine: { notAsked },
  });
}

/** One of each family, made when it is first asked for. */
class IdleBackends implements AsyncDisposable {
  readonly #create: (family: IpFamily) => Backend;
  readonly #made = new Map<IpFamily, Backend>();

  constructor({ createBackend }: Pick<PlannedNode, "createBackend">) {
    this.#create = createBackend;
  }

  of(family: IpFamily): Backend {
    const backend = this.#made.get(family) ?? this.#create(family);
    this.#made.set(family, backend);
    return backend;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const backend of this.#made.values()) await backend[Symbol.asyncDispose]();
  }
}
