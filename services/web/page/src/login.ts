import { post } from "./api";
import { notice, words } from "./store";

// logIn uses the link that the page was opened by, if it was, and removes it from the address.
export async function logIn(): Promise<void> {
  const token = /^#login=([A-Za-z0-9]+)$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, "", "#/");
  try {
    await post("/session", { token });
  } catch (err) {
    notice(words(err), true);
  }
}
