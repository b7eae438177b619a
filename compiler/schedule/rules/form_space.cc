#include "compiler/schedule/rules/form_space.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace heddle::schedule {

namespace {

class FormSpace : public Space {
 public:
  FormSpace(std::vector<Form> forms, int preferred)
      : forms_(std::move(forms)), preferred_(preferred) {}

  int NumDecisions() const override {
    int count = 1;
    for (const Form& form : forms_) count += form.space->NumDecisions();
    return count;
  }
  int32_t Choices(int decision) const override {
    if (decision == 0) return static_cast<int32_t>(forms_.size());
    const auto [form, own] = Locate(decision);
    return forms_[form].space->Choices(own);
  }
  std::string Describe(int decision) const override {
    if (decision == 0) return "form";
    const auto [form, own] = Locate(decision);
    return absl::StrCat(forms_[form].name, ": ", forms_[form].space->Describe(own));
  }
  absl::StatusOr<Trace> Expand(const Point& point) const override {
    HEDDLE_RETURN_IF_ERROR(CheckPoint(point));
    return forms_[point[0]].space->Expand(Own(point, point[0]));
  }
  absl::StatusOr<Trace> ExpandWith(const Point& point, Replayer& known) const override {
    HEDDLE_RETURN_IF_ERROR(CheckPoint(point));
    return forms_[point[0]].space->ExpandWith(Own(point, point[0]), known);
  }
  double Size() const override {
    double size = 0;
    for (const Form& form : forms_) size += form.space->Size();
    return size;
  }
  Point Random(Rng& rng) const override {
    const int form =
        std::uniform_int_distribution<int>(0, static_cast<int>(forms_.size()) - 1)(rng);
    return With(form, forms_[form].space->Random(rng));
  }
  Point Mutate(const Point& point, Rng& rng) const override {
    // One mutation in kSeldom, or in the number of the form's decisions if that is more, changes
    // the form.
    constexpr int kSeldom = 16;
    const Space& space = *forms_[point[0]].space;
    const int others = std::max(space.NumDecisions(), kSeldom) - 1;
    if (space.Size() == 1 || std::uniform_int_distribution<int>(0, others)(rng) == 0) {
      const int step =
          std::uniform_int_distribution<int>(1, static_cast<int>(forms_.size()) - 1)(rng);
      const int form = (point[0] + step) % static_cast<int>(forms_.size());
      return With(form, forms_[form].space->Preferred());
    }
    return With(point[0], space.Mutate(Own(point, point[0]), rng));
  }
  Point Cross(const Point& a, const Point& b, Rng& rng) const override {
    return a[0] == b[0] ? Space::Cross(a, b, rng) : a;
  }
  bool Next(Point& point) const override {
    int form = point[0];
    Point own = Own(point, form);
    const bool more = forms_[form].space->Next(own);
    if (!more) {
      form = (form + 1) % static_cast<int>(forms_.size());
      own.assign(forms_[form].space->NumDecisions(), 0);
    }
    point = With(form, own);
    return more || form != 0;
  }
  std::vector<Offer> Offers() const override {
    std::vector<Offer> offers;
    for (const Form& form : forms_) {
      for (Offer offer : form.space->Offers()) {
        offer.stage = absl::StrCat(form.name, ": ", offer.stage);
        offers.push_back(std::move(offer));
      }
    }
    return offers;
  }
  Point Preferred() const override {
    return With(preferred_, forms_[preferred_].space->Preferred());
  }

 private:
  absl::Status CheckPoint(const Point& point) const {
    if (static_cast<int>(point.size()) == NumDecisions() && point[0] >= 0 &&
        point[0] < static_cast<int32_t>(forms_.size()))
      return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("not a point of ", NumDecisions(),
                                                   " decisions and ", forms_.size(), " forms"));
  }
  int Begin(int form) const {
    int begin = 1;
    for (int f = 0; f < form; ++f) begin += forms_[f].space->NumDecisions();
    return begin;
  }
  std::pair<int, int> Locate(int decision) const {
    int form = 0;
    while (decision >= Begin(form + 1)) ++form;
    return {form, decision - Begin(form)};
  }
  Point Own(const Point& point, int form) const {
    const auto begin = point.begin() + Begin(form);
    return Point(begin, begin + forms_[form].space->NumDecisions());
  }
  Point With(int form, const Point& own) const {
    Point point(NumDecisions(), 0);
    point[0] = form;
    std::copy(own.begin(), own.end(), point.begin() + Begin(form));
    return point;
  }

  std::vector<Form> forms_;
  int preferred_;
};

}  // namespace

std::unique_ptr<Space> MakeFormSpace(std::vector<Form> forms, int preferred) {
  return std::make_unique<FormSpace>(std::move(forms), preferred);
}

}  // namespace heddle::schedule
