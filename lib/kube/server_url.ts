/**
 * Where the API server is, as people write it.
 *
 * @module
 */
import { KubeAuthError } from "./kube_identity.ts";

/**
 * The URL of an API server. HOST:PORT gets a scheme as in client-go: https where anything is known
 * that only TLS needs (a CA, a certificate), otherwise http. Throws a {@linkcode KubeAuthError} that
 * names the field.
 */
export function serverUrl(
  field: string,
  text: string,
  { usesTls }: { readonly usesTls: boolean },
): string {
  const hasScheme = text.includes("://");
  const url = URL.parse(hasScheme ? text : `${usesTls ? "https" : "http"}://${text}`);
  const isHttp = url !== null && /^https?:$/.test(url.protocol);
  if (isHttp && hasScheme) return text;
  if (isHttp && url.pathname === "/" && url.search === "") return url.origin;
  throw new KubeAuthError(
    `Cannot use ${field}: '${text}' has to be a URL such as https://192.0.2.1:6443`,
  );
}
