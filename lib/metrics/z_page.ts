/**
 * The common form of `/flagz` and `/statusz`: text for people, or an object of `config.k8s.io` for
 * programs that request it by its full name (KEP-4827, KEP-4828).
 *
 * @module
 */
import { answerJson, answerText, refuseWriting } from "./plain_answer.ts";

/** A page in both forms. */
export interface ZPage {
  readonly kind: "Flagz" | "Statusz";
  /** Fields of the object besides kind, version and name. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** The lines for people. */
  readonly lines: readonly string[];
}

const GROUP = "config.k8s.io";
/** The second is deprecated upstream and has the same content. */
const VERSIONS: readonly (string | undefined)[] = ["v1beta1", "v1alpha1"];
/** Dashboards and scripts look for this component. */
const COMPONENT = "kube-proxy";

/** One form that an Accept header asks for. */
interface MediaType {
  readonly type: string;
  readonly parameters: ReadonlyMap<string, string>;
}

/** Answers with the first available form of the Accept header, or with 406. */
export function answerZPage(request: Request, page: ZPage): Response {
  const refusal = refuseWriting(request);
  if (refusal) return refusal;
  for (const { type, parameters } of parseAccept(request.headers.get("accept") || "*/*")) {
    if (["*/*", "text/*", "text/plain"].includes(type)) return answerText(textOf(page));
    const version = parameters.get("v");
    const isNamed = parameters.get("g") === GROUP && parameters.get("as") === page.kind &&
      VERSIONS.includes(version);
    if (isNamed && ["application/json", "application/yaml"].includes(type)) {
      return answerJson(objectOf(page, version!), type);
    }
  }
  const wanted = `application/json;g=${GROUP};v=${VERSIONS[0]};as=${page.kind}`;
  return answerText(`Answers are text/plain or ${wanted}\n`, 406);
}

function textOf({ kind, lines }: ZPage): string {
  const title = `${COMPONENT} ${kind.toLowerCase()}`;
  return `${title}\nFor people: the form may change from one release to the next.\n\n${
    lines.map((line) => `${line}\n`).join("")
  }`;
}

function objectOf({ kind, fields }: ZPage, version: string): Readonly<Record<string, unknown>> {
  return { kind, apiVersion: `${GROUP}/${version}`, metadata: { name: COMPONENT }, ...fields };
}

function parseAccept(header: string): readonly MediaType[] {
  return header.split(",").map((range) => {
    const [type = "", ...parameters] = range.split(";").map((part) => part.trim());
    const pairs = parameters.map((text) => {
      const [name = "", value = ""] = text.split("=", 2);
      return [name, value] as const;
    });
    return { type: type.toLowerCase(), parameters: new Map(pairs) };
  }).filter(({ parameters }) => !/^0(\.0*)?$/.test(parameters.get("q") ?? ""));
}
